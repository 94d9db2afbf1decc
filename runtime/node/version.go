package node

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// module is this module's path.
const module = "github.com/carillon-rt/carillon"

// release is written by the linker (-X, see the Makefile) and by nothing else.
var release string

// Version is Carillon's version in this program, if the build knows it: "v1.2.3", "devel", "unknown".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(release, info)
}

// versionOf returns the version that the linker stamped, or else the one that the toolchain recorded: "devel" for a
// build of a checkout that recorded nothing.
func versionOf(stamped string, info *debug.BuildInfo) string {
	recorded := ""
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module {
			recorded = strings.Trim(m.Version, "()")
		}
	}
	return cmp.Or(stamped, recorded, "unknown")
}

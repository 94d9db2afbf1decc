package node

import "runtime/debug"

// module is this module's path.
const module = "github.com/carillon-rt/carillon"

// release is written by the linker (-X, see the Makefile) and by nothing else.
var release string

// version is Carillon's in this program, as far as the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(release, info)
}

// versionOf is what the linker stamped, or else what the toolchain recorded: "devel" for a build of a checkout that recorded nothing.
func versionOf(stamped string, info *debug.BuildInfo) string {
	if stamped != "" {
		return stamped
	}
	recorded := ""
	if info.Main.Path == module {
		recorded = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == module {
			recorded = m.Version
		}
	}
	switch recorded {
	case "":
		return "unknown"
	case "(devel)":
		return "devel"
	}
	return recorded
}

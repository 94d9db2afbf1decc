// Package build says which Carillon this is: what the linker stamped into the binary, and where it did not, what the
// Go toolchain recorded.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are written by the linker (-X, see the Makefile) and by nothing else.
var version, commit string

// Info describes the running binary.
type Info struct {
	Version  string `json:"version"`  // a tag, or what git describe made of it; "devel" when nobody stamped it
	Commit   string `json:"commit"`   // the full hash; "unknown" when neither the linker nor the toolchain knew it
	Go       string `json:"go"`       // the toolchain, such as "go1.26.8"
	Platform string `json:"platform"` // such as "linux/amd64"
}

// Read returns the Info of the running binary.
func Read() Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if recorded, ok := debug.ReadBuildInfo(); ok {
		info.fill(recorded)
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	if info.Commit == "" {
		info.Commit = "unknown"
	}
	return info
}

// fill takes from the toolchain's record what the linker did not stamp: go install pkg@v1.2.3 knows its version, and
// a build in a checkout knows its commit.
func (i *Info) fill(recorded *debug.BuildInfo) {
	if v := recorded.Main.Version; i.Version == "" && v != "(devel)" {
		i.Version = v
	}
	for _, s := range recorded.Settings {
		if s.Key == "vcs.revision" && i.Commit == "" {
			i.Commit = s.Value
		}
	}
}

// String returns the Info in one line.
func (i Info) String() string {
	short := i.Commit
	if len(short) > 12 {
		short = short[:12]
	}
	return fmt.Sprintf("carillon %s (commit %s, %s, %s)", i.Version, short, i.Go, i.Platform)
}

package build

import (
	"runtime/debug"
	"testing"
)

func TestStampWinsOverTheToolchain(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main:     debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}},
	}
	for _, c := range []struct{ stamped, want Info }{
		{Info{}, Info{Version: "v1.2.3", Commit: "abc"}},
		{Info{Version: "v9", Commit: "def"}, Info{Version: "v9", Commit: "def"}},
	} {
		if c.stamped.fill(recorded); c.stamped != c.want {
			t.Errorf("got %+v, want %+v", c.stamped, c.want)
		}
	}
	devel := Info{}
	devel.fill(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}})
	if devel != (Info{}) {
		t.Errorf("a development build is %+v", devel)
	}
}

func TestString(t *testing.T) {
	i := Info{Version: "v1", Commit: "0123456789abcdef", Go: "go1", Platform: "linux/amd64"}
	if want := "carillon v1 (commit 0123456789ab, go1, linux/amd64)"; i.String() != want {
		t.Errorf("got %q, want %q", i, want)
	}
}

package node

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	own := func(v string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Path: module, Version: v}} }
	used := &debug.BuildInfo{
		Main: debug.Module{Path: "example.org/train", Version: "v7"},
		Deps: []*debug.Module{{Path: "example.org/x"}, {Path: module, Version: "v1.2.3"}},
	}
	for _, c := range []struct {
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		{"v1-5-gabc", own("(devel)"), "v1-5-gabc"},
		{"", own("(devel)"), "devel"},
		{"", own("v1.2.3"), "v1.2.3"},
		{"", used, "v1.2.3"},
		{"", &debug.BuildInfo{}, "unknown"},
	} {
		if got := versionOf(c.stamped, c.info); got != c.want {
			t.Errorf("stamped %q, recorded %v: %q, want %q", c.stamped, c.info.Main, got, c.want)
		}
	}
}

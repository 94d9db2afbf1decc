package lifecycle

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type thing struct{}

func (*thing) method() Site { return Caller("") }

func TestCaller(t *testing.T) {
	before := time.Now()
	here := Caller("")
	if here.Func != "lifecycle.TestCaller" || filepath.Base(here.File) != "site_test.go" || here.Line == 0 {
		t.Errorf("Caller = %+v", here)
	}
	if here.Time.Before(before) || time.Since(here.Time) > time.Minute {
		t.Errorf("Caller's time is %v; it was called after %v", here.Time, before)
	}
	if got := new(thing).method().Func; got != "lifecycle.(*thing).method" {
		t.Errorf("the site of a method is in %q", got)
	}
	if outer := Caller("github.com/carillon-rt/carillon/lifecycle"); outer.Func != "testing.tRunner" {
		t.Errorf("the caller of this package is %+v", outer)
	}
	other := make(chan Site)
	go func() { other <- Caller("") }()
	if there := <-other; there.Goroutine == here.Goroutine || there.Goroutine == 0 || here.Goroutine == 0 {
		t.Errorf("two goroutines have the numbers %d and %d", here.Goroutine, there.Goroutine)
	}
	if want := ", goroutine "; !strings.Contains(here.String(), want) {
		t.Errorf("String() = %q; want it to say %q", here, want)
	}
}

func TestSiteString(t *testing.T) {
	full := Site{
		Func: "main.train", File: "/home/ada/job/train.go", Line: 12, Goroutine: 7,
		Time: time.Date(2026, 3, 1, 9, 5, 7, 250e6, time.UTC),
	}
	for _, c := range []struct {
		site Site
		want string
	}{
		{full, "main.train (train.go:12), goroutine 7"},
		{Site{Func: "main.train", File: "train.go", Line: 12}, "main.train (train.go:12)"},
		{Site{Func: "f+0x1f in job.so+0x2c", File: "/job.so", Goroutine: 7}, "f+0x1f in job.so+0x2c, thread 7"},
		{Site{Func: "step", File: "/job/train.py", Line: 12, Goroutine: 7}, "step (train.py:12), thread 7"},
		{Site{}, "an unknown place"},
		{Site{Time: full.Time}, "an unknown place"},
	} {
		if got := c.site.String(); got != c.want {
			t.Errorf("%+v: String() = %q; want %q", c.site, got, c.want)
		}
	}
	if !(Site{}).IsZero() || full.IsZero() || (Site{Time: full.Time}).IsZero() {
		t.Error("IsZero is not true of the zero Site alone")
	}
}

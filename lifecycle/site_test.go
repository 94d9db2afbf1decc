package lifecycle

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func helper() Site { return Caller(1) }

type thing struct{}

func (*thing) method() Site { return Caller(0) }

func TestCaller(t *testing.T) {
	before := time.Now()
	here := Caller(0)
	fromHelper := helper()
	if here.Func != "lifecycle.TestCaller" || filepath.Base(here.File) != "site_test.go" || here.Line == 0 {
		t.Errorf("Caller(0) = %+v", here)
	}
	if fromHelper.Func != here.Func || fromHelper.Line != here.Line+1 {
		t.Errorf("Caller(1) from a helper = %+v; want the line after %+v", fromHelper, here)
	}
	if here.Time.Before(before) || time.Since(here.Time) > time.Minute {
		t.Errorf("Caller's time is %v; it was called after %v", here.Time, before)
	}
	if got := new(thing).method().Func; got != "lifecycle.(*thing).method" {
		t.Errorf("the site of a method is in %q", got)
	}
	if deep := Caller(10_000); deep.Func != "" || deep.Time.IsZero() {
		t.Errorf("Caller(10000) = %+v; want no function, but a time", deep)
	}
	other := make(chan Site)
	go func() { other <- Caller(0) }()
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

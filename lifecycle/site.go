package lifecycle

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Site is the place and moment of a call. The zero Site is an unknown one.
type Site struct {
	Func      string // "main.train", "model.(*Net).Fit": with its package's last element; in C "f+0x1f in job.so+0x2c"
	File      string // as the compiler knows it, usually an absolute path; in C the program's or library's
	Line      int    // 0 in C
	Goroutine uint64 // Go's number, as in a stack dump; outside Go the thread's; 0 if unknown
	Time      time.Time
}

// Caller returns the Site of the call into the package with the path outside: of the innermost function on the stack
// that isn't in it. "" is no package. It takes about a microsecond and allocates, so it is for calls that change a
// communicator's state, not for operations.
func Caller(outside string) Site {
	site := Site{Goroutine: goroutine(), Time: time.Now()}
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if outside == "" || !strings.HasPrefix(frame.Function, outside+".") {
			if frame.Function != "" && !strings.HasPrefix(frame.Function, "runtime.") {
				site.Func, site.File, site.Line = path.Base(frame.Function), frame.File, frame.Line
			}
			return site
		}
		if !more {
			return site
		}
	}
}

// goroutine reads the number of the calling goroutine from the first line of its stack dump ("goroutine 18
// [running]:"), the only place that has it. It is only used in messages.
func goroutine() uint64 {
	var buf [64]byte
	dump := buf[:runtime.Stack(buf[:], false)]
	dump = bytes.TrimPrefix(dump, []byte("goroutine "))
	number, _, _ := bytes.Cut(dump, []byte(" "))
	n, _ := strconv.ParseUint(string(number), 10, 64)
	return n
}

// IsZero reports whether the site is unknown. A Site with only a Time is not zero.
func (s Site) IsZero() bool { return s == Site{} }

// InGo reports whether Go code made the call, and not C or Python.
func (s Site) InGo() bool { return strings.HasSuffix(s.File, ".go") }

// known reports whether the place is known.
func (s Site) known() bool { return s.Func != "" || s.File != "" }

// String is "main.train (train.go:12), goroutine 7", "step (train.py:12), thread 4711", or "train+0x1f in
// train.so+0x2c1f, thread 4711", leaving out unknown parts.
func (s Site) String() string {
	if !s.known() {
		return "an unknown place"
	}
	text, runs := s.Func, "thread"
	if s.Line > 0 {
		text = fmt.Sprintf("%s (%s:%d)", text, filepath.Base(s.File), s.Line)
	}
	if s.InGo() {
		runs = "goroutine"
	}
	if s.Goroutine != 0 {
		text += fmt.Sprintf(", %s %d", runs, s.Goroutine)
	}
	return text
}

// madeBy says which call did something: " by main.train (train.go:12), goroutine 7, at 2026-03-01 12:00:00.000",
// leaving out unknown parts.
func (s Site) madeBy() string {
	var parts []string
	if s.known() {
		parts = append(parts, " by "+s.String())
	}
	if !s.Time.IsZero() {
		parts = append(parts, " at "+clock(s.Time))
	}
	return strings.Join(parts, ",")
}

// clock is a time in an error, with its date, as errors may be read days later.
func clock(t time.Time) string { return t.Format("2006-01-02 15:04:05.000") }

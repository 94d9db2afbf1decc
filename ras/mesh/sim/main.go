package sim

import (
	"flag"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
)

// Main runs f in virtual time and on one thread, and ends the process, with status 0 if f returned true and 1
// otherwise. It is for a command: synctest's bubbles need a test, so Main runs f as the only test of this program. out
// is where f is to write: the standard output, on which the testing package would otherwise have the last word.
//
// All goroutines that f started must have ended when it returns, or soon after.
func Main(f func(out *os.File) bool) {
	out := os.Stdout
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stdout = null
	}
	// On one thread, goroutines that are ready at one instant run in the order in which they became ready, so that the
	// outcome of a simulation depends on the seed alone. More threads would not make it faster.
	runtime.GOMAXPROCS(1)
	testing.Init()
	if !flag.Parsed() {
		_ = flag.CommandLine.Parse(nil) // there is nothing to parse
	}
	run := testing.InternalTest{Name: "sim", F: func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			if !f(out) {
				t.Fail()
			}
		})
	}}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{run}, nil, nil)
}

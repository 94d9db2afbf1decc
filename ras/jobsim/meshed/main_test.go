package meshed_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// One thread: the race detector fails when two run timers of one bubble (https://go.dev/issue/78156), and simulated
	// members gain little from more.
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}

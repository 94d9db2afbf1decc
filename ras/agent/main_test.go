package agent

import (
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		writeAndWait(dir)
	}
	runtime.GOMAXPROCS(1) // as the race detector needs it in bubbles: https://go.dev/issue/78156
	goleak.VerifyTestMain(m)
}

package mesh

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(runChild())
	}
	code := m.Run()
	// memberlist's last probes end some seconds after it was shut down.
	if code == 0 {
		for end := time.Now().Add(30 * time.Second); ; {
			err := goleak.Find()
			if err == nil {
				break
			}
			if time.Now().After(end) {
				_, _ = os.Stderr.WriteString(err.Error() + "\n")
				code = 1
				break
			}
		}
	}
	os.Exit(code)
}

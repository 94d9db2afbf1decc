package logsink

import "testing"

func TestExpand(t *testing.T) {
	if got, want := expand("log.%h.%p.100%%.%x", "h/st%1", 42), "log.h-st-1.42.100%.%x"; got != want {
		t.Errorf("the file is %q, want %q", got, want)
	}
}

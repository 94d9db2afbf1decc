package tape

import (
	"encoding/binary"
	"os"
	"strconv"
	"testing"
)

// newTape makes a tape that goes with the test. All operations are for followers, unless cfg says how many.
func newTape(t testing.TB, cfg Config) *Writer {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.SampleEvery == 0 {
		cfg.SampleEvery = 1
	}
	w, err := Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func openTape(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// all collects the events of a tape.
func all(t testing.TB, r *Reader) []Event {
	t.Helper()
	var events []Event
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	return events
}

func pid() string { return strconv.Itoa(os.Getpid()) }

// foldAgain makes the header's check fit again after a test changed a byte.
func foldAgain(b []byte) { binary.LittleEndian.PutUint64(b[hdrCheck:], headerCheck(b)) }

package tape

import (
	"os"
	"strconv"
	"testing"
	"unsafe"
)

// newTape makes a tape that ends with the test. Followers get all operations, unless cfg sets the sampling.
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

// Offsets, within their parts, of the fields that tests change.
const (
	hdrVersion      = int(unsafe.Offsetof(header{}.version))
	hdrSlots        = int(unsafe.Offsetof(header{}.slots))
	hdrTallies      = int(unsafe.Offsetof(header{}.tallies))
	hdrOpRecords    = int(unsafe.Offsetof(header{}.opRecords))
	hdrFileSize     = int(unsafe.Offsetof(header{}.fileSize))
	hdrStartTicks   = int(unsafe.Offsetof(header{}.startTicks))
	hdrCreatedMono  = int(unsafe.Offsetof(header{}.createdMono))
	hdrCreatedWall  = int(unsafe.Offsetof(header{}.createdWall))
	hdrHost         = int(unsafe.Offsetof(header{}.host))
	hdrOpHead       = changingAt + int(unsafe.Offsetof(changing{}.opHead))
	hdrLifeHead     = changingAt + int(unsafe.Offsetof(changing{}.lifeHead))
	hdrOrdinaryHead = changingAt + int(unsafe.Offsetof(changing{}.ordinaryHead))
	hdrTallyHead    = changingAt + int(unsafe.Offsetof(changing{}.tallyHead))
	hdrClock        = changingAt + int(unsafe.Offsetof(changing{}.clock))
	tallyCall       = int(unsafe.Offsetof(tally{}.call))
	tallySampled    = int(unsafe.Offsetof(tally{}.sampled))
	slotInfo        = int(unsafe.Offsetof(slot{}.info))
	infoName        = wordSize + int(unsafe.Offsetof(commState{}.name)) // in the first copy
)

// foldAgain corrects the header's check after a test changed a byte.
func foldAgain(b []byte) {
	h := (*header)(unsafe.Pointer(&b[0]))
	h.check = check(formatVersion, wordsOf(&h.static))
}

package tape

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// OpenCut reads the rest of a tape that was cut short.
func TestOpenCut(t *testing.T) {
	b := sample(t)
	path := filepath.Join(t.TempDir(), "x.tape")
	for _, size := range []int{len(b), len(b) - 1, len(b) - 64*recordSize, headerSize + slotSize, headerSize} {
		if err := os.WriteFile(path, b[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		r, cut, err := OpenCut(path)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if whole := size == len(b); whole != (cut == 0) || !whole && cut != int64(size) {
			t.Errorf("%d bytes of %d: cut is %d", size, len(b), cut)
		}
		slots, err := r.AppendSlots(nil)
		if want := min(2, (size-headerSize)/slotSize); len(slots) != want || err != nil {
			t.Errorf("%d bytes: %d slots, want %d; %v", size, len(slots), want, err)
		}
		events := all(t, r)
		if missed := r.Missed(); (size > headerSize+2*slotSize+64*recordSize) != (len(events) > 0) ||
			cut > 0 && missed == (Missed{}) {
			t.Errorf("%d bytes: %d events, missed %+v", size, len(events), missed)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		var malformed *FormatError
		if _, err := Open(path); cut > 0 && !errors.As(err, &malformed) {
			t.Errorf("%d bytes: Open says %v", size, err)
		}
	}
	if err := os.WriteFile(path, b[:headerSize-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenCut(path); err == nil {
		t.Error("a part of a header was taken for a tape")
	}
}

func TestWallShift(t *testing.T) {
	b := sample(t)
	path := filepath.Join(t.TempDir(), "x.tape")
	for _, want := range []time.Duration{0, time.Hour, -time.Minute} {
		var pair [2]uint64
		pair[0] = binary.LittleEndian.Uint64(b[hdrCreatedMono:]) + 1e9
		pair[1] = binary.LittleEndian.Uint64(b[hdrCreatedWall:]) + uint64(1e9+want)
		const copyAt = hdrClock + 3*wordSize // the second one, which has the odd versions; the tape's first is there
		binary.LittleEndian.PutUint64(b[copyAt:], marker(1, 0, pair[:]))
		binary.LittleEndian.PutUint64(b[copyAt+wordSize:], pair[0])
		binary.LittleEndian.PutUint64(b[copyAt+2*wordSize:], pair[1])
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := openTape(t, path).Header().WallShift(); got != want {
			t.Errorf("the time of day went %v ahead, want %v", got, want)
		}
	}
}

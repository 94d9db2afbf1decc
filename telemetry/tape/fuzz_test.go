package tape

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Where the parts of a sample lie. The rings have 128 records each.
const (
	sampleLife     = headerSize + 2*slotSize + 2*tallySize
	sampleOps      = sampleLife + 128*recordSize
	sampleOrdinary = sampleOps + 128*recordSize
)

// sample is a small tape with everything on it.
func sample(t testing.TB) []byte {
	w := newTape(t, Config{
		Dir: t.TempDir(), Job: "j", Host: "h", Slots: 2, Tallies: 2, OpRecords: 128, LifeRecords: 128, SampleEvery: -1,
	})
	for i := range 3 {
		c := w.Comm(CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Name: "world", Size: 2})
		c.State(lifecycle.StateReady)
		for range 40 {
			seq := c.Start(0, allReduce, 1)
			c.Wait(1)
			c.End(seq, 0)
			c.End(c.Start(0, allReduce, 1), 0)
		}
		c.Life(LifeRecord{
			Act: ActSplit, Stage: StageMisuse, Text: strings.Repeat("text ", 60),
			Site: lifecycle.Caller(""), First: lifecycle.Caller(""), Child: lifecycle.CommID{4}, Shared: true,
		})
		c.StartFrom(Now(), &SpanContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}}, 0, &allReduce, 1)
	}
	b, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAll does everything that can be done with a file that may be a tape.
func readAll(t *testing.T, dir string, b []byte) error {
	_, err := readEvents(t, dir, b)
	return err
}

// readEvents is readAll, and returns the events.
func readEvents(t *testing.T, dir string, b []byte) (events []Event, err error) {
	path := filepath.Join(dir, "x.tape")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	r.Header()
	r.Liveness()
	slots, _ := r.AppendSlots(nil)
	if len(slots) > r.geo.slots {
		t.Errorf("%d slots of %d", len(slots), r.geo.slots)
	}
	tallies, _ := r.AppendTallies(nil)
	if len(tallies) > r.geo.tallies {
		t.Errorf("%d tallies of %d", len(tallies), r.geo.tallies)
	}
	for ev, err := range r.Events() {
		if err == nil {
			events = append(events, ev)
		}
	}
	if most := r.geo.life + r.geo.op + r.geo.pages()*pageWords; len(events) > most {
		t.Errorf("%d events of %d records", len(events), most)
	}
	return events, nil
}

// FuzzOpen changes a tape anywhere, or cuts it, with the header's check corrected or not.
func FuzzOpen(f *testing.F) {
	good, dir := sample(f), f.TempDir()
	f.Add(0, []byte{}, len(good), false)
	f.Add(0, []byte("garbage"), len(good), false)
	f.Add(0, []byte{}, 100, true)
	f.Add(hdrSlots, []byte{255, 255, 255, 255}, len(good), true)
	f.Add(hdrOpRecords, []byte{0, 0, 0, 128}, len(good), true)
	f.Add(hdrOpHead, []byte{255, 255, 255, 255, 255, 255, 255, 255}, len(good), true)
	f.Add(hdrOrdinaryHead, []byte{255, 255, 255, 255, 255, 255, 255, 255}, len(good), true)
	f.Add(sampleOrdinary+recordSize, []byte{255, 255, 255, 255, 255, 255, 255, 255}, len(good), false)
	f.Add(hdrTallyHead, []byte{255, 255}, len(good), true)
	f.Add(headerSize+2*slotSize+tallyCall, []byte{255, 255}, len(good), true)
	f.Add(hdrTallies, []byte{0, 0, 0, 128}, len(good), true)
	f.Add(hdrLifeHead, []byte{0, 0, 0, 0, 0, 0, 0, 128}, len(good), true)
	f.Add(headerSize, make([]byte, 2*slotSize), len(good), true)
	f.Add(sampleLife+8*recordWords, []byte{1, 2, 3, 4}, len(good), true)
	f.Fuzz(func(t *testing.T, at int, bytes []byte, size int, fit bool) {
		b := append([]byte(nil), good...)
		if at >= 0 && at < len(b) {
			copy(b[at:], bytes)
		}
		if fit {
			foldAgain(b)
		}
		if size >= 0 && size < len(b) {
			b = b[:size]
		}
		_ = readAll(t, dir, b) // any error will do
	})
}

// putRecord puts a record with a correct check on a sample's ring.
func putRecord(t *testing.T, ring []byte, index uint64, kind uint8, r *record) {
	t.Helper()
	at := ring[index%128*recordSize:]
	if before := binary.LittleEndian.Uint64(at); index < 128 && before != 0 || index >= 128 && before>>32 != index-128 {
		t.Fatalf("this is no place of record %d: there is %#x", index, before)
	}
	r[recMarker] = marker(index, kind, r[1:])
	for i, w := range r {
		binary.LittleEndian.PutUint64(at[i*wordSize:], w)
	}
}

// FuzzRecords corrects the records' checks, so that the code behind them is reached: a life record with any words and
// any tail.
func FuzzRecords(f *testing.F) {
	good, dir := sample(f), f.TempDir()
	f.Add(uint8(kindLife), uint64(0), uint64(0), uint64(3)<<32, []byte{1, 255, 255})
	f.Add(uint8(kindComm), uint64(1)<<63, uint64(0), uint64(19)<<32, []byte{tailID, 3, 0, 1, 2, 3})
	f.Add(uint8(kindLife), uint64(1), ^uint64(0), ^uint64(0), []byte{tailSite, 22, 0})
	f.Add(uint8(kindLife), uint64(1), uint64(9), uint64(25)<<32,
		append([]byte{tailSite, 22, 0, 19: 0}, 0, 0, 0, 255, 255))
	f.Add(uint8(kindContinue), uint64(1), uint64(9), uint64(9), []byte{})
	f.Add(uint8(99), uint64(1), uint64(9), uint64(9), []byte{})
	f.Fuzz(func(t *testing.T, kind uint8, opHead, kinds, peer uint64, tail []byte) {
		b := append([]byte(nil), good...)
		tail = tail[:min(len(tail), maxTail)]
		head := binary.LittleEndian.Uint64(b[hdrLifeHead:])
		put := func(index uint64, kind uint8, r *record) { putRecord(t, b[sampleLife:], index, kind, r) }
		put(head, kind,
			&record{recLifeOpHead: opHead, recLifeKinds: kinds, recLifePeer: peer, recComm: kinds})
		more := uint64(0)
		for ; len(tail) > 0; more++ {
			var r record
			n := min(len(tail), tailPerRecord)
			copy(bytesOf(r[1:]), tail[:n])
			tail = tail[n:]
			put(head+1+more, kindContinue, &r)
		}
		binary.LittleEndian.PutUint64(b[hdrLifeHead:], head+1+more)
		if err := readAll(t, dir, b); err != nil {
			t.Errorf("the header is good: %v", err)
		}
	})
}

// FuzzOpRecords does the same with two records at the end of the op ring, of any kinds.
func FuzzOpRecords(f *testing.F) {
	good, dir := sample(f), f.TempDir()
	f.Add(uint8(kindCaller), uint8(kindOp), uint64(1)<<40, uint64(1), uint64(1))
	f.Add(uint8(kindCaller), uint8(kindCaller), ^uint64(0), ^uint64(0), uint64(0))
	f.Add(uint8(kindOp), uint8(kindCaller), uint64(1)<<40, uint64(1)<<63, uint64(2)<<32)
	f.Fuzz(func(t *testing.T, first, second uint8, kinds, comm, next uint64) {
		b := append([]byte(nil), good...)
		head := binary.LittleEndian.Uint64(b[hdrOpHead:])
		for i, kind := range []uint8{first, second} {
			index := head + uint64(i)
			r := record{
				recTime: 1, 2: kinds, recKinds: kinds, 4: next, 5: next, 6: next,
				recComm: comm + uint64(i)*next,
			}
			putRecord(t, b[sampleOps:], index, kind, &r)
		}
		binary.LittleEndian.PutUint64(b[hdrOpHead:], head+2)
		if err := readAll(t, dir, b); err != nil {
			t.Errorf("the header is good: %v", err)
		}
	})
}

// FuzzPages does the same with a page of the ordinary ring: a record of any operation, and any two words behind it.
func FuzzPages(f *testing.F) {
	good, dir := sample(f), f.TempDir()
	f.Add(uint8(kindOrdinary), uint64(1), uint64(1), uint64(1), uint64(1)<<32|repeatBit|1, uint64(1)<<32|repeatBit)
	f.Add(uint8(kindOrdinary), ^uint64(0), ^uint64(0), uint64(1)<<63, ^uint64(0), uint64(repeatBit))
	f.Add(uint8(kindOp), uint64(0), uint64(1)<<62, ^uint64(0), ^uint64(0)>>1, ^uint64(0))
	f.Fuzz(func(t *testing.T, kind uint8, comm, kinds, at, first, second uint64) {
		b := append([]byte(nil), good...)
		r := record{recTime: at + first, recKinds: kinds, recStart: at, recComm: comm}
		r[recMarker] = marker(8, kind, r[1:]) // of the four pages, the first
		for i, w := range append(r[:], first, second) {
			binary.LittleEndian.PutUint64(b[sampleOrdinary+i*wordSize:], w)
		}
		events, err := readEvents(t, dir, b)
		if err != nil {
			t.Errorf("the header is good: %v", err)
		}
		is := func(ev Event) bool {
			return !ev.IsLife && ev.Op.Start == int64(at) && ev.Op.Time == int64(at+first) && ev.Op.Ordinary
		}
		if slices.ContainsFunc(events, is) != (kind == kindOrdinary) {
			t.Errorf("kind %d: the page's first operation is read, or is not", kind)
		}
	})
}

// The error says what is wrong with a file.
func TestOpenRefuses(t *testing.T) {
	good := sample(t)
	for _, tt := range []struct {
		name   string
		change func(b []byte) []byte
		says   string
	}{
		{"empty", func([]byte) []byte { return nil }, "has 0 bytes"},
		{"garbage", func(b []byte) []byte { copy(b, "GARBAGE!"); return b }, `begins with "GARBAGE!"`},
		{
			"newer", func(b []byte) []byte { b[hdrVersion] = 9; foldAgain(b); return b },
			"has format 9; this program reads format 5",
		},
		{"a bit", func(b []byte) []byte { b[hdrHost] ^= 1; return b }, "corrupt header"},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }, "was cut short: it has 34815 bytes of 34816"},
		{"slots", func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[hdrSlots:], 1<<31)
			foldAgain(b)
			return b
		}, "claims 2147483648 slots; allowed are 1 to 16384"},
		{"ring", func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[hdrOpRecords:], 100)
			foldAgain(b)
			return b
		}, "claims 100 op records, which is not a power of two"},
		{
			"size", func(b []byte) []byte { b[hdrFileSize] ^= 1; foldAgain(b); return b },
			"claims a size of 34817 bytes; its parts have 34816",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := readAll(t, t.TempDir(), tt.change(append([]byte(nil), good...)))
			var malformed *FormatError
			if !errors.As(err, &malformed) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want a FormatError with %q", err, tt.says)
			}
		})
	}
	dir := t.TempDir()
	must(t, os.Symlink("/etc/passwd", dir+"/link.tape"))
	for path, says := range map[string]string{
		dir: "no regular file", dir + "/link.tape": "symbolic link", dir + "/none": "no such file",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%s): %v", path, err)
		}
	}
}

// A slot or a record with a flipped bit is left out and counted, and the rest is read.
func TestCorruptParts(t *testing.T) {
	b := sample(t)
	path := filepath.Join(t.TempDir(), "x.tape")
	b[headerSize+slotInfo+infoName] ^= 1                          // slot 0, the copy that is current after two updates
	binary.LittleEndian.PutUint64(b[sampleOps+5*recordSize:], 77) // an op record's marker
	must(t, os.WriteFile(path, b, 0o600))
	r := openTape(t, path)
	slots, err := r.AppendSlots(nil)
	var malformed *FormatError
	if len(slots) != 1 || slots[0].Index != 1 || !errors.As(err, &malformed) ||
		!strings.Contains(err.Error(), "corrupt slot 0") {
		t.Errorf("%d slots, %v", len(slots), err)
	}
	ops := 0
	for ev, err := range r.Events() {
		must(t, err)
		if !ev.IsLife {
			ops++
		}
	}
	// 3 times 121 operations' records and a caller's were written, and 80 of the third communicator's, which has
	// neither a slot nor a tally. The ring holds 128, among them a caller's. The others' 80 ordinary operations are
	// on 4 pages, with 8 on each, as their numbers don't follow each other.
	if got, want := r.Missed().Op, uint64(3*122+80-128+1+48); ops != 126+32 || got != want {
		t.Errorf("%d operations of 158, missed %d of %d", ops, got, want)
	}
}

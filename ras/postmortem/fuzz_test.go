package postmortem

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// FuzzMerge reads two tapes together, one of which the fuzzer fills: with records that make no sense, numbers out of
// all bounds, or bytes that are no tape.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add([]byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18"),
		uint8(1))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x80"),
		uint8(2))
	// Rank 1 has counted as many as rank 0, in less time.
	f.Add(numbers(1, 2, uint64(lifecycle.CallAllReduce), 0, 1000, 0, 0, uint64(time.Second), 0, 0, 0, 0, 0, 0, 1000),
		uint8(1))
	f.Add(bytes.Repeat(numbers(256), 300), uint8(1))            // many of everything
	f.Add(bytes.Repeat(numbers(math.MaxUint64), 300), uint8(1)) // and more than can be
	f.Add(scribbled([]byte{9, 9, 9, 9, 9, 9, 9}, 0).Bytes()[:9000], uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, how uint8) {
		dir := t.TempDir()
		good := scribbled(nil, 0)
		good.Tallies = []tape.Tally{{
			Name: name, Call: lifecycle.CallAllReduce, Time: time.Minute,
			Durations: [tape.DurationBuckets]uint64{8: 1000},
		}}
		bad := scribbled(data, how)
		b := bad.Bytes()
		switch how % 4 {
		case 2: // bytes anywhere
			for i := 0; i+3 < len(data); i += 4 {
				at := (int(data[i])<<16 | int(data[i+1])<<8 | int(data[i+2])) % len(b)
				b[at] ^= data[i+3]
			}
		case 3: // cut, or something else entirely
			b = append(b[:min(len(b), 4096*int(how)/2)], data...)
		}
		for name, b := range map[string][]byte{"good.tape": good.Bytes(), "bad.tape": b} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Read([]string{dir}, Options{Run: -1, Last: 100})
		if err != nil {
			t.Fatalf("the good tape could not be used: %v", err)
		}
		if err := r.Write(io.Discard, TextOptions{Width: 80, Color: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	})
}

// name is a communicator's name with a control sequence that a terminal would obey.
const name = "world\x1b[2J"

// numbers encodes numbers as scribbled reads them.
func numbers(ns ...uint64) (data []byte) {
	for _, n := range ns {
		data = binary.BigEndian.AppendUint64(data, n)
	}
	return data
}

// scribbled is a tape whose tallies, records and slots are made of data, eight bytes a number.
func scribbled(data []byte, seed uint8) *tapetest.Forge {
	next := func() (n uint64) {
		for range 8 {
			if len(data) > 0 {
				n, data = n<<8|uint64(data[0]), data[1:]
			}
		}
		return n
	}
	id := lifecycle.CommID{1}
	info := tape.CommInfo{ID: id, Name: name, Rank: int(int32(next())), Size: int(int32(next()) | 2)}
	var tallies []tape.Tally
	for range 3 {
		t := tape.Tally{
			Name: name, Call: lifecycle.Call(next()), SizeClass: uint8(next()), Bytes: next(), Ordinary: next(),
			OrdinaryTime: time.Duration(next()), Time: time.Duration(next()), Bandwidth: math.Float64frombits(next()),
		}
		for i := range t.Durations {
			t.Durations[i] = next()
		}
		for i := range t.Bandwidths {
			t.Bandwidths[i] = next()
		}
		tallies = append(tallies, t)
	}
	f := &tapetest.Forge{
		PID: int(int32(next())), Host: "h", Job: "j", BootID: "b", KernelBoot: [16]byte{seed}, CreatedMono: 1,
		CreatedWall: int64(next()), LatchMono: int64(next()), LatchWall: int64(next()), Tallies: tallies,
	}
	f.Comm(1, 1, info)
	f.Slots = []tape.Slot{{
		CommInfo: info, Generation: 1, Root: 1, State: lifecycle.State(next()), Launched: next(), Completed: next() | 1,
		Seq: next(),
		Op: tape.Signature{
			Call: lifecycle.Call(next()), DataType: uint8(next()), Peer: int32(next()), Bytes: next(),
		},
		OpStart: int64(next()), Wait: int32(next()), WaitSince: int64(next()), LastEnd: int64(next()),
		Phase: tape.Phase(next()),
	}}
	for range 6 {
		f.Op(1, tape.OpRecord{
			Time: int64(next()), Start: int64(next()), Seq: next(), Stage: tape.Stage(next() % 6), Wait: int32(next()),
			Phase:     tape.Phase(next()),
			Signature: tape.Signature{Call: lifecycle.Call(next()), Peer: int32(next()), Bytes: next()},
			Code:      lifecycle.Code(next()),
		})
		f.Life(1, tape.LifeRecord{
			Time: int64(next()), Start: int64(next()), Seq: next(), Stage: tape.Stage(next() % 6),
			Act: tape.Act(next()), Call: lifecycle.Call(next()),
			Peer: int32(next()), Code: lifecycle.Code(next()), State: lifecycle.State(next()),
			Text: "\x00\xff\x1b]0;x\a",
		})
	}
	return f
}

package tcp

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func sampleRoll() *rendezvous.Roll {
	return &rendezvous.Roll{Size: 4, Members: []rendezvous.Member{
		{Rank: 0, Size: 4, Host: "a", PID: 12, Arrived: noon.Add(-3 * time.Second)},
		{Rank: 1, Size: 4, Host: "a", PID: 13, Left: noon.Add(-time.Second), How: rendezvous.Closed},
		{
			Rank: 2, Size: 8, Host: "b", PID: 1, Arrived: noon.Add(-2 * time.Second), Left: noon, How: rendezvous.GaveUp,
			Detail: "its context expired",
		},
		{Rank: -7, Size: 4, Host: "", PID: 0, Arrived: noon},
	}}
}

func TestRollSurvivesTheWire(t *testing.T) {
	body := encodeRoll(sampleRoll(), noon)
	r, err := decodeReply(kindRoll, append([]byte{9}, body...), noon)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleRoll(), r.roll); diff != "" || r.stream != 9 {
		t.Errorf("stream %d (-sent +received):\n%s", r.stream, diff)
	}
}

func TestReadFrame(t *testing.T) {
	frame := encodeRefused(1, "no")
	k, body, err := readFrame(bytes.NewReader(frame), requestLimit)
	if err != nil || k != kindRefused || !bytes.Equal(body, frame[headerSize:]) {
		t.Errorf("%d %q %v", k, body, err)
	}
	if _, _, err := readFrame(bytes.NewReader(nil), requestLimit); !errors.Is(err, io.EOF) {
		t.Errorf("an end between frames is an end: %v", err)
	}
	for cut := 1; cut < len(frame); cut++ {
		if _, _, err := readFrame(bytes.NewReader(frame[:cut]), requestLimit); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
	}
	if _, _, err := readFrame(bytes.NewReader([]byte("\xff\x00\x00\x42\x01")), requestLimit); !errors.Is(err,
		errMalformed) {
		t.Errorf("a body over the limit: %v", err)
	}
}

// TestPromisedLength: a length costs the reader no memory of its own size.
func TestPromisedLength(t *testing.T) {
	promise := []byte("\x3f\xff\xff\xff\x0a and little more")
	var err error
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, err = readFrame(bytes.NewReader(promise), replyLimit)
		}
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame cut off: %v", err)
	}
	if got := result.AllocedBytesPerOp(); got > 3*firstRead {
		t.Errorf("a promise of a gibibyte cost %d bytes", got)
	}
}

// FuzzDecode gives any bytes to every decoder: none may panic, and what is taken must be within limits and encode to
// what decodes to the same.
func FuzzDecode(f *testing.F) {
	roll := encodeRoll(sampleRoll(), noon)
	j := join{stream: 1, rank: 1, size: 2, pid: 7, host: "a", key: "cards", payload: []byte("card")}
	for _, frame := range [][]byte{
		j.encode(),
		(&leave{rank: 3, key: "cards", reason: "its context expired"}).encode(),
		(&ask{stream: 4, key: "cards"}).encode(),
		encodeRefused(5, "used up"),
		append(encodeReply(kindFailed, 6, roll), roll...),
		append(encodeReply(kindRoll, 6, roll), roll...),
		append(encodeReply(kindResult, 7, encodePayloads([][]byte{{1}, nil})), encodePayloads([][]byte{{1}, nil})...),
	} {
		f.Add(frame[4], frame[headerSize:])
	}
	f.Add(byte(kindResult), []byte("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add(byte(kindJoin), []byte{0x80})
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		switch kind(k) {
		case kindJoin:
			j, err := decodeJoin(body)
			if err != nil {
				return
			}
			if len(j.payload) > rendezvous.MaxPayload || len(j.key) > rendezvous.MaxKey || len(j.host) > maxHost || j.pid < 0 {
				t.Fatalf("beyond the limits: %+v", j)
			}
			b := j.encode()
			if second, err := decodeJoin(b[headerSize:]); err != nil || !cmp.Equal(j, second, cmp.AllowUnexported(join{})) {
				t.Fatalf("%+v encodes to %+v (%v)", j, second, err)
			}
		case kindLeave:
			l, err := decodeLeave(body)
			if err != nil {
				return
			}
			b := l.encode()
			if second, err := decodeLeave(b[headerSize:]); err != nil || second != l {
				t.Fatalf("%+v encodes to %+v (%v)", l, second, err)
			}
		case kindAsk:
			a, err := decodeAsk(body)
			if err != nil {
				return
			}
			b := a.encode()
			if second, err := decodeAsk(b[headerSize:]); err != nil || second != a {
				t.Fatalf("%+v encodes to %+v (%v)", a, second, err)
			}
			return
		default:
			r, err := decodeReply(kind(k), body, noon)
			if err != nil || r.roll == nil {
				return
			}
			if r.roll.Size > rendezvous.MaxRanks || len(r.roll.Members) > len(body) {
				t.Fatalf("beyond the limits: %+v", r.roll)
			}
			_ = r.roll.Err(0, noon, nil).Error() // whatever a server says can be told
			b := append([]byte{1}, encodeRoll(r.roll, noon)...)
			second, err := decodeReply(kindRoll, b, noon)
			if err != nil || !cmp.Equal(r.roll, second.roll) {
				t.Fatalf("%+v encodes to %+v (%v)", r.roll, second.roll, err)
			}
		}
	})
}

package tcp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func sampleRoll() *rendezvous.Roll {
	return &rendezvous.Roll{Size: 4, Members: []rendezvous.Member{
		{Rank: 0, Size: 4, Host: "a", PID: 12, Arrived: noon.Add(-3 * time.Second)},
		{Rank: 1, Size: 4, Host: "a", PID: 13, Left: noon.Add(-time.Second), How: rendezvous.Closed},
		{
			Rank: 2, Size: 8, Host: "b", PID: 1, Arrived: noon.Add(-2 * time.Second), Left: noon,
			How: rendezvous.GaveUp, Detail: "its context expired",
		},
		{Rank: -7, Size: 4, Host: "", PID: 0, Arrived: noon},
		{Rank: 3, Size: 4, Host: "a", PID: 14, Was: 5, Without: "ranks 1 and 4", Arrived: noon},
	}}
}

func TestRollSurvivesTheWire(t *testing.T) {
	body := encodeRoll(sampleRoll(), noon)
	r, err := decodeReply(kindRoll, append([]byte{9}, body...), noon)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleRoll(), r.outcome.Failed); diff != "" || r.stream != 9 {
		t.Errorf("stream %d (-sent +received):\n%s", r.stream, diff)
	}
}

func TestReadFrame(t *testing.T) {
	frame := (&request{kind: kindAsk, stream: 1, key: "no"}).encode()
	k, body, err := readFrame(bytes.NewReader(frame), requestLimit)
	if err != nil || k != kindAsk || !bytes.Equal(body, frame[headerSize:]) {
		t.Errorf("%d %q %v", k, body, err)
	}
	if _, _, err := readFrame(bytes.NewReader(nil), requestLimit); !errors.Is(err, io.EOF) {
		t.Errorf("an end between frames is an end: %v", err)
	}
	for cut := 1; cut < len(frame); cut++ {
		_, _, err := readFrame(bytes.NewReader(frame[:cut]), requestLimit)
		if !errors.Is(err, io.ErrUnexpectedEOF) && cut != headerSize || cut == headerSize && err == nil {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
		if how, _ := departure(err); how != rendezvous.Died {
			t.Errorf("an end after %d bytes of a frame counts as %v", cut, how)
		}
	}
	if _, _, err := readFrame(bytes.NewReader([]byte("\xff\x00\x00\x42\x01")), requestLimit); !errors.Is(err,
		errMalformed) {
		t.Errorf("a body over the limit: %v", err)
	}
}

// TestPromisedLength: a large length alone doesn't make the reader allocate that much.
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

// FuzzDecode gives any bytes to every decoder: none may panic, and accepted messages must be within limits, and decode
// to the same after encoding.
func FuzzDecode(f *testing.F) {
	roll := encodeRoll(sampleRoll(), noon)
	member := rendezvous.Member{Rank: 1, Size: 2, PID: 7, Host: "a", Was: 2, Without: "rank 1"}
	shared := func(o *mem.Outcome) []byte {
		k, b := encodeOutcome(o)
		return append(encodeReply(k, 7, b), b...)
	}
	for _, frame := range [][]byte{
		(&request{kind: kindJoin, stream: 1, member: member, key: "cards", payload: []byte("card")}).encode(),
		(&request{
			kind: kindLeave, member: member, key: "cards", how: rendezvous.GaveUp, reason: "it expired",
		}).encode(),
		(&request{kind: kindAbsent, stream: 7, member: member, key: "cards", reason: "its disk is full"}).encode(),
		(&request{kind: kindAsk, stream: 4, key: "cards"}).encode(),
		(&request{kind: kindBye}).encode(),
		append(encodeReply(kindRoll, 6, roll), roll...),
		shared(&mem.Outcome{Failed: sampleRoll()}),
		shared(&mem.Outcome{Refused: "used up"}),
		shared(&mem.Outcome{Payloads: [][]byte{{1}, nil}}),
	} {
		f.Add(frame[4], frame[headerSize:])
	}
	f.Add(byte(kindResult), []byte("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add(byte(kindJoin), []byte{0x80})
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		switch kind(k) {
		case kindJoin, kindLeave, kindAbsent, kindAsk, kindBye:
			q, err := decodeRequest(kind(k), body)
			if err != nil {
				return
			}
			if len(q.payload) > rendezvous.MaxPayload || len(q.key) > rendezvous.MaxKey ||
				len(q.member.Host) > maxHost || q.member.PID < 0 || len(q.reason) > maxText {
				t.Fatalf("beyond the limits: %+v", q)
			}
			second, err := decodeRequest(kind(k), q.encode()[headerSize:])
			if err != nil || !cmp.Equal(q, second, cmp.AllowUnexported(request{})) {
				t.Fatalf("%+v encodes to %+v (%v)", q, second, err)
			}
		default:
			r, err := decodeReply(kind(k), body, noon)
			if err != nil || r.outcome.Failed == nil {
				return
			}
			if r.outcome.Failed.Size > rendezvous.MaxRanks || len(r.outcome.Failed.Members) > len(body) {
				t.Fatalf("beyond the limits: %+v", r.outcome.Failed)
			}
			_ = r.outcome.Failed.Err(0, noon, nil).Error() // any roll of a server can be formatted
			b := append([]byte{1}, encodeRoll(r.outcome.Failed, noon)...)
			second, err := decodeReply(kindRoll, b, noon)
			if err != nil || !cmp.Equal(r.outcome.Failed, second.outcome.Failed) {
				t.Fatalf("%+v encodes to %+v (%v)", r.outcome.Failed, second.outcome.Failed, err)
			}
		}
	})
}

func TestLongReason(t *testing.T) {
	q := request{kind: kindLeave, key: "world", reason: "a" + strings.Repeat("ö", maxText)}
	k, body, err := readFrame(bytes.NewReader(q.encode()), requestLimit)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRequest(k, body)
	if err != nil || len(got.reason) > maxText || len(got.reason) < maxText-8 ||
		!utf8.ValidString(got.reason) {
		t.Errorf("%q, %v: want the beginning of the reason, with no character cut", got.reason, err)
	}
}

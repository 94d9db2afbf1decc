package mesh

import (
	"bytes"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/telemetry/process"
)

var (
	sampleMember = Member{
		Name: "node-a-4711", Host: "node-a", Rank: 3, JobSize: 8,
		ID:       process.ID{PID: 4711, StartTicks: 1 << 40, PIDSpace: 4026531836, BootID: process.BootID{1, 2, 3}},
		Instance: 1<<63 + 5, Health: "http://10.0.0.1:9400",
	}
	sampleFate = fate{
		name: "node-a-4711", instance: 7, state: Dead, cause: CauseExit, at: 1 << 50, age: 3 * time.Second,
		exit: process.Exit{Known: true, Signal: syscall.SIGKILL}, by: "node-a-4712",
	}
	sampleQuestion = question{
		id: [16]byte{1, 2}, asker: "node-a-1", reply: netip.MustParseAddrPort("10.0.0.1:7946"), replyTo: "node-b-2",
		left: 1500 * time.Millisecond, direct: true, body: []byte("where are you?"),
		units: []unit{
			{member: instance{"node-a-3", 9}, absent: []instance{{"node-a-4", 10}}},
			{member: instance{"node-b-5", 11}},
		},
	}
	sampleReplies = []reply{
		{from: "node-a-3", by: "node-a-3", body: []byte("here")},
		{from: "node-a-4", by: "node-a-3", status: replyNothing},
	}
	sampleID       = [16]byte{3, 1, 4}
	sampleInstance = instance{"node-a-3", 9}
)

// equal compares with all unexported fields.
var equal = cmp.AllowUnexported(fate{}, question{}, unit{}, instance{}, reply{})

// sameAddr compares addresses, which cmp may not look into.
var sameAddr = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func TestEveryMessageIsReadAsItWasWrittenAndNotWhenCutShort(t *testing.T) {
	fates := []fate{sampleFate, {name: "x-1", state: Alive, exit: process.Exit{Known: true, Code: -3}}}
	for _, c := range []struct {
		name   string
		whole  []byte
		want   any
		decode func([]byte) (any, error)
	}{
		{"meta", appendMeta(nil, &sampleMember), sampleMember, func(b []byte) (any, error) { return decodeMeta(b) }},
		{"fate", fateMessage(&sampleFate)[2:], sampleFate, func(b []byte) (any, error) { return decode(b, readFate) }},
		{"fates", appendFates(nil, fates), fates, func(b []byte) (any, error) { return decodeFates(b) }},
		{
			"name", nameMessage(msgCheck, sampleInstance)[2:], sampleInstance,
			func(b []byte) (any, error) { return decode(b, readInstance) },
		},
		{
			"question", appendQuestion(nil, &sampleQuestion),
			sampleQuestion, func(b []byte) (any, error) { return decodeQuestion(b) },
		},
		{"replies", appendReplies(nil, sampleID, sampleReplies), sampleReplies, func(b []byte) (any, error) {
			id, replies, err := decodeReplies(b)
			if err == nil && id != sampleID {
				t.Errorf("the id of the replies is %x, want %x", id, sampleID)
			}
			return replies, err
		}},
	} {
		got, err := c.decode(c.whole)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if d := cmp.Diff(c.want, got, equal, sameAddr); d != "" {
			t.Errorf("%s: want, got:\n%s", c.name, d)
		}
		for n := range c.whole {
			if got, err := c.decode(c.whole[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes were read as %+v", c.name, n, len(c.whole), got)
			}
		}
	}
}

// TestCountsThatPromiseMoreThanIsThere would run out of memory if a decoder made room for what a message promises.
func TestCountsThatPromiseMoreThanIsThere(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}
	if _, err := decodeFates(append([]byte{wireVersion}, huge...)); err == nil {
		t.Error("a state exchange with 2^64-1 fates was read")
	}
	if _, _, err := decodeReplies(append(slices.Clone(sampleID[:]), huge...)); err == nil {
		t.Error("2^64-1 replies were read")
	}
	whole := appendQuestion(nil, &sampleQuestion)
	body := bytes.LastIndex(whole, wire.AppendBytes(nil, sampleQuestion.body))
	if _, err := decodeQuestion(append(slices.Clone(whole[:body]), huge...)); err == nil {
		t.Error("a question of 2^64-1 bytes was read")
	}
}

func FuzzMeta(f *testing.F) {
	f.Add(appendMeta(nil, &sampleMember))
	f.Add([]byte{metaVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := decodeMeta(appendMeta(nil, &m))
		if err != nil || again != m {
			t.Errorf("%+v was read again as %+v, %v", m, again, err)
		}
		if len(m.Name) > maxName {
			t.Errorf("the name %q has %d bytes, want at most %d", m.Name, len(m.Name), maxName)
		}
	})
}

func FuzzFates(f *testing.F) {
	f.Add(appendFates(nil, []fate{sampleFate, sampleFate}))
	f.Add(fateMessage(&sampleFate))
	f.Fuzz(func(t *testing.T, b []byte) {
		fates, err := decodeFates(b)
		if err != nil {
			return
		}
		again, err := decodeFates(appendFates(nil, fates))
		if d := cmp.Diff(fates, again, equal); err != nil || d != "" {
			t.Errorf("%v, read first and again:\n%s", err, d)
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add(nameMessage(msgCheck, sampleInstance)[2:])
	f.Fuzz(func(t *testing.T, b []byte) {
		about, err := decode(b, readInstance)
		if err != nil {
			return
		}
		if again, err := decode(nameMessage(msgCheck, about)[2:], readInstance); err != nil || again != about {
			t.Errorf("%v was read again as %v, %v", about, again, err)
		}
	})
}

func FuzzQuestion(f *testing.F) {
	f.Add(appendQuestion(nil, &sampleQuestion))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeQuestion(b)
		if err != nil {
			return
		}
		again, err := decodeQuestion(appendQuestion(nil, &q))
		if d := cmp.Diff(q, again, equal, sameAddr); err != nil || d != "" {
			t.Errorf("%v, read first and again:\n%s", err, d)
		}
		if n := len(split(q.units)); n > fanOut {
			t.Errorf("%d units are split into %d, want at most %d", len(q.units), n, fanOut)
		}
	})
}

func FuzzReplies(f *testing.F) {
	f.Add(appendReplies(nil, sampleID, sampleReplies))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, replies, err := decodeReplies(b)
		if err != nil {
			return
		}
		id2, again, err := decodeReplies(appendReplies(nil, id, replies))
		if d := cmp.Diff(replies, again, equal); err != nil || d != "" || id != id2 {
			t.Errorf("%v, read first and again:\n%s", err, d)
		}
	})
}

// FuzzSeal gives what a stranger may send: none of it is the job's.
func FuzzSeal(f *testing.F) {
	s, err := newSeal(make([]byte, SecretSize), "fuzz")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.tag[:])
	f.Add(append(slices.Clone(s.tag[:]), make([]byte, sealOverhead+1)...))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := s.openPacket(b); err == nil {
			t.Error("a packet of nobody's was let through")
		}
	})
}

func decode[T fate | instance](body []byte, read func(*wire.Reader) T) (T, error) {
	r := wire.NewReader(body)
	t := read(r)
	return t, r.Err()
}

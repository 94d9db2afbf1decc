package mesh

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
		ID: "314", Asker: "node-a-1", Reply: netip.MustParseAddrPort("10.0.0.1:7946"), ReplyTo: "node-b-2",
		Left: 1500 * time.Millisecond, Body: []byte("where are you?"),
		Units: []unit{
			{Member: instance{"node-a-3", 1<<64 - 9}, Absent: []instance{{"node-a-4", 10}}},
			{Member: instance{"node-b-5", 11}},
		},
	}
	sampleAnswers = answers{"314", []reply{
		{From: "node-a-3", By: "node-a-3", Body: []byte("here")},
		{From: "node-a-4", By: "node-a-3", Status: replyNothing},
	}}
	sampleInstance = instance{"node-a-3", 9}
)

// equal compares with all unexported fields.
var equal = cmp.AllowUnexported(fate{})

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
		{"meta", encodeMeta(&sampleMember), sampleMember, func(b []byte) (any, error) { return decodeMeta(b) }},
		{"fate", fateMessage(&sampleFate)[2:], sampleFate, func(b []byte) (any, error) { return decode(b, readFate) }},
		{"fates", encodeFates(fates), fates, func(b []byte) (any, error) { return decodeFates(b) }},
		{
			"name", nameMessage(msgCheck, sampleInstance)[2:], sampleInstance,
			func(b []byte) (any, error) { return decode(b, readInstance) },
		},
		{
			"question", encode(msgQuestion, sampleQuestion)[2:],
			&sampleQuestion, func(b []byte) (any, error) { return decodeQuestion(b) },
		},
		{
			"answers", encode(msgAnswers, sampleAnswers)[2:],
			&sampleAnswers, func(b []byte) (any, error) { return decodeAnswers(b) },
		},
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
}

// TestBoundsOfMessages has messages of which a part is larger than allowed.
func TestBoundsOfMessages(t *testing.T) {
	for name, change := range map[string]func(q *question){
		"no units":        func(q *question) { q.Units = nil },
		"too many":        func(q *question) { q.Units = make([]unit, maxTargets+1) },
		"too many of one": func(q *question) { q.Units[0].Absent = make([]instance, maxTargets) },
		"no asker":        func(q *question) { q.Asker = "" },
		"a long asker":    func(q *question) { q.Asker = strings.Repeat("a", maxName+1) },
		"a long body":     func(q *question) { q.Body = make([]byte, MaxQuestion+1) },
		"a long time":     func(q *question) { q.Left = maxAskTime + 1 },
		"no address":      func(q *question) { q.Reply = netip.AddrPort{} },
	} {
		q := sampleQuestion
		q.Units = slices.Clone(q.Units)
		change(&q)
		if _, err := decodeQuestion(encode(msgQuestion, q)[2:]); err == nil {
			t.Errorf("a question with %s was read", name)
		}
	}
	for _, r := range []reply{{Status: numReplies}, {Body: make([]byte, MaxAnswer+1)}} {
		if _, err := decodeAnswers(encode(msgAnswers, answers{"314", []reply{r}})[2:]); err == nil {
			t.Errorf("an answer of the status %d and %d bytes was read", r.Status, len(r.Body))
		}
	}
}

func FuzzMeta(f *testing.F) {
	f.Add(encodeMeta(&sampleMember))
	f.Add([]byte{metaVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := decodeMeta(encodeMeta(&m))
		if err != nil || again != m {
			t.Errorf("%+v was read again as %+v, %v", m, again, err)
		}
		if len(m.Name) > maxName {
			t.Errorf("the name %q has %d bytes, want at most %d", m.Name, len(m.Name), maxName)
		}
	})
}

func FuzzFates(f *testing.F) {
	f.Add(encodeFates([]fate{sampleFate, sampleFate}))
	f.Add(fateMessage(&sampleFate))
	f.Fuzz(func(t *testing.T, b []byte) {
		fates, err := decodeFates(b)
		if err != nil {
			return
		}
		again, err := decodeFates(encodeFates(fates))
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
	f.Add(encode(msgQuestion, sampleQuestion)[2:])
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeQuestion(b)
		if err != nil {
			return
		}
		again, err := decodeQuestion(encode(msgQuestion, q)[2:])
		if d := cmp.Diff(q, again, sameAddr, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%v, read first and again:\n%s", err, d)
		}
		if n := len(split(q.Units)); n > fanOut {
			t.Errorf("%d units are split into %d, want at most %d", len(q.Units), n, fanOut)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add(encode(msgAnswers, sampleAnswers)[2:])
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAnswers(b)
		if err != nil {
			return
		}
		again, err := decodeAnswers(encode(msgAnswers, a)[2:])
		if d := cmp.Diff(a, again, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%v, read first and again:\n%s", err, d)
		}
	})
}

// FuzzSeal opens what a stranger may send: none of it is the job's.
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

package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func newTestAgent(t testing.TB) *Agent {
	t.Helper()
	self := mesh.Member{Name: "host-1", Host: "host", ID: process.ID{PID: 1}, Rank: 0, JobSize: 2}
	return New(self, func() verdict.Note { return verdict.Note{Member: self.Name} }, Config{})
}

// FuzzHandle: no input breaks Handle, and input that is no message changes nothing.
func FuzzHandle(f *testing.F) {
	f.Add((&message{Kind: askNotes}).encode())
	f.Add((&message{Kind: askLook}).encode())
	f.Add(encodeOpen("host-2", 3, []verdict.Verdict{{Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 1}}}},
		[]string{"past"}))
	f.Add([]byte(`{"v":2,"kind":"look"}`))
	f.Add([]byte(`{"v":2,"kind":"open","open":[{"reason":"hunger"}]}`))
	f.Add([]byte("\x00{"))
	f.Add([]byte(`{"v":2,"kind":"kept","kept":{"turn":1,"members":[{"pid":7,"rank":1,"state":4,"cause":1}]}}`))
	f.Add([]byte(`{"v":2,"kind":"kept","kept":{"turn":1,"members":[{"pid":7,"state":99}]}}`))
	f.Add([]byte(`{"v":2,"kind":"kept","kept":{"turn":1,"members":[{"pid":7,"cause":99}]}}`))
	f.Add([]byte(`{"v":2,"kind":"kept"}`))
	keeper := mesh.Member{Name: "host-2", Host: "host", ID: process.ID{PID: 2}, Rank: -1, Keeper: "host-2"}
	f.Fuzz(func(t *testing.T, b []byte) {
		a := newTestAgent(t)
		answer := a.Handle(t.Context(), "host-2", b)
		m, err := decode(b)
		known := err == nil && slices.Contains([]kind{askNotes, askLook, tellOpen, tellKept}, m.Kind)
		a.changes(a.keptElsewhere([]mesh.Status{{Member: keeper, State: mesh.Suspect}}))
		a.changes(a.keptElsewhere([]mesh.Status{{Member: keeper}}))
		if (answer != nil) != known {
			t.Errorf("%q is answered with %q; it is a message: %v", b, answer, known)
		}
		if !known && len(a.queue) > 0 {
			t.Errorf("%q has an effect", b)
		}
	})
}

// FuzzDecodeNote: a note that can be decoded can be diagnosed, whatever it says.
func FuzzDecodeNote(f *testing.F) {
	n := verdict.Note{Member: "host-2", Slots: []verdict.Slot{{
		Rank: 1, Size: 4, Seq: 7, InFlight: 1, Stalled: true,
		Wait: 3, Op: tape.Signature{Call: lifecycle.CallAllReduce},
	}}}
	f.Add(encodeNote(&n, nil, mesh.MaxAnswer))
	f.Add(
		[]byte(
			`{"member":"host-2","slots":[{"rank":-5,"size":99999999,"in_flight":18446744073709551615,"stalled":true}]}`,
		),
	)
	f.Add([]byte(`{"member":"host-3"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNote("host-2", b)
		if err != nil {
			return
		}
		if n.Member != "host-2" {
			t.Fatalf("a note of %q is taken for host-2's", n.Member)
		}
		verdict.Diagnose([]verdict.Note{n, {Member: "host-1"}})
	})
}

func TestNoteThatIsTooLongKeepsWhatMatters(t *testing.T) {
	n := verdict.Note{Member: "host-1", Where: "main.train"}
	for i := range 2000 {
		s := verdict.Slot{
			Comm: lifecycle.CommID{byte(i), byte(i >> 8), 1}, Name: strings.Repeat("n", 30),
			Rank: 3, Size: 8, Wait: -1,
		}
		if i%100 == 0 {
			s.InFlight, s.Seq, s.Stalled = 1, uint64(i), true
		}
		n.Slots = append(n.Slots, s)
	}
	inQuestion := n.Slots[1234].Comm // where this rank is idle, and others wait for it
	n.Habits = []verdict.Habit{{Root: 1, Trail: verdict.Trail{{Slot: 1, Seq: 1}}}}
	b := encodeNote(&n, []lifecycle.CommID{{9}, inQuestion}, mesh.MaxAnswer)
	if got, err := decodeNote(n.Member, b); err != nil || got.Habits != nil {
		t.Errorf("a trail names places among slots that were cut: %v, %v", got.Habits, err)
	}
	if len(b) == 0 || len(b) > mesh.MaxAnswer {
		t.Fatalf("%d bytes, want 1 to %d", len(b), mesh.MaxAnswer)
	}
	got, err := decodeNote("host-1", b)
	if err != nil {
		t.Fatal(err)
	}
	stalled := 0
	for i := range got.Slots {
		if got.Slots[i].Stalled {
			stalled++
		}
	}
	if !slices.ContainsFunc(got.Slots, func(s verdict.Slot) bool { return s.Comm == inQuestion }) {
		t.Errorf("the slot in question is not among the %d that are left", len(got.Slots))
	}
	if stalled != 20 {
		t.Errorf("%d of 20 stalled slots of %d are left", stalled, len(got.Slots))
	}
	long := strings.Repeat("x", 2*mesh.MaxAnswer)
	n = verdict.Note{Member: "host-1", Where: long, Stack: []string{long, long}}
	if b = encodeNote(&n, nil, mesh.MaxAnswer); len(b) == 0 || len(b) > mesh.MaxAnswer {
		t.Errorf("a note with a long place has %d bytes, want 1 to %d", len(b), mesh.MaxAnswer)
	}
}

// TestVerdictsToldInPartKeepTheirID: a broadcast fits into a question, and a verdict that is told in part keeps its ID.
func TestVerdictsToldInPartKeepTheirID(t *testing.T) {
	var open []verdict.Verdict
	for i := range 40 {
		v := verdict.Verdict{
			Reason: verdict.NotEntered, ID: fmt.Sprint("id ", i), Text: verdict.Sentence(strings.Repeat("é", 5000)),
			Evidence: []verdict.Text{verdict.Sentence(strings.Repeat("e", 5000))},
		}
		for r := range 500 {
			v.Culprits = append(v.Culprits, verdict.Rank{
				Job: 1000*i + r, Comm: r, Member: fmt.Sprintf("host-%d", r),
				Host: "host",
			})
			v.Victims = append(v.Victims, verdict.Wait{Rank: verdict.Rank{Job: r}, Call: "all_reduce"})
		}
		open = append(open, v)
	}
	b := encodeOpen("host-1", 7, open, nil)
	if len(b) > maxTold {
		t.Fatalf("%d bytes, want at most %d", len(b), maxTold)
	}
	m, err := decode(b)
	if err != nil || len(m.Open) == 0 || m.From != "host-1" || m.Turn != 7 {
		t.Fatalf("%d verdicts of %q, turn %d, %v; want some", len(m.Open), m.From, m.Turn, err)
	}
	for i := range m.Open {
		v := m.verdicts()[i]
		if v.ID != open[i].ID {
			t.Errorf("verdict %d is told as %s, and is %s", i, v.ID, open[i].ID)
		}
		if text := v.Text.String(); !strings.HasSuffix(text, " …") || strings.ContainsRune(text, '\uFFFD') {
			t.Errorf("a text is cut to %q", text)
		}
	}
	if len(open[0].Evidence[0].String()) != 5000 || len(open[0].Culprits) != 500 {
		t.Error("the coordinator's own verdict was shortened with it")
	}
}

// TestLongVerdictIsTold: hosts have long names, and texts may hold anything.
func TestLongVerdictIsTold(t *testing.T) {
	for name, char := range map[string]string{"plain": "h", "control characters": "\x01"} {
		v := verdict.Verdict{
			ID: "0123", Reason: verdict.RankUnreachable, Name: strings.Repeat(char, 255),
			Text: verdict.Sentence(strings.Repeat(char, 5000)),
		}
		for r := range 64 {
			host := strings.Repeat(char, 64)
			rank := verdict.Rank{
				Job: r, Comm: r, Member: fmt.Sprintf("%s-%d", host, 1<<20+r), Host: host, PID: 1<<20 + r,
			}
			v.Culprits = append(v.Culprits, rank)
			v.Victims = append(v.Victims, verdict.Wait{Rank: rank, Name: v.Name, Call: "all_reduce", Seq: 1 << 40})
			v.Evidence = append(v.Evidence, verdict.Sentence(strings.Repeat(char, 5000)))
		}
		b := encodeOpen("host-1", 7, []verdict.Verdict{v, v}, nil)
		m, err := decode(b)
		if err != nil || len(b) > maxTold {
			t.Fatalf("%s: %d bytes, %v; want at most %d", name, len(b), err, maxTold)
		}
		if len(m.Open) != 1 || m.Open[0].ID != v.ID || len(m.Open[0].Culprits) == 0 {
			t.Errorf("%s: told are %d verdicts; want the first, with a culprit and its ID", name, len(m.Open))
		}
	}
}

// TestLongIDs: a verdict whose ID is too long is not accepted, as a process that takes over tells the IDs of many
// verdicts in one question.
func TestLongIDs(t *testing.T) {
	for n, want := range map[int]int{maxID: 1, maxID + 1: 0} {
		a := newTestAgent(t)
		v := verdict.Verdict{Reason: verdict.RankDead, ID: strings.Repeat("x", n)}
		a.Handle(t.Context(), "host-2", encodeOpen("host-2", 1, []verdict.Verdict{v}, nil))
		if len(a.queue) != want {
			t.Errorf("of an ID of %d bytes %d words are taken, want %d", n, len(a.queue), want)
		}
	}
	var past []string
	for range mostPast {
		past = append(past, strings.Repeat("\x01", maxID)) // six bytes each in JSON
	}
	if n := len(encodeOpen("host-1", 1, nil, past)); n > maxTold {
		t.Errorf("the longest that were given up take %d bytes, want at most %d", n, maxTold)
	}
}

// TestVerdictEventCanBeRead: a receiver can read a verdict's event without this package.
func TestVerdictEventCanBeRead(t *testing.T) {
	v := verdict.Verdict{ID: "0123", Reason: verdict.RankDead, Culprits: []verdict.Rank{
		{Job: 3, Comm: -1},
		{Job: 4, Comm: -1},
	}, Text: verdict.Sentence("rank 3 ended")}
	ev := verdictEvent(&verdict.Change{Kind: verdict.Opened, Verdict: v}, time.Time{}, time.Time{})
	b, err := json.Marshal(ev.Data)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(b, &got); err != nil || got.ID != v.ID || got.Reason != "rank_dead" {
		t.Errorf("%s is read as %+v (%v)", b, got, err)
	}
	if ev.Subject != "rank 3 and 1 more" || ev.Rank != "3 and 4" || ev.Key != VerdictKey(v.ID) {
		t.Errorf("the event is about %q, rank %q, key %q", ev.Subject, ev.Rank, ev.Key)
	}
}

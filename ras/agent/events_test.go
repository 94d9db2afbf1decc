package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestVerdictOfThousandsIsTold: a bus takes the event of a verdict for which 4,096 ranks on hosts with long names wait,
// whatever its texts hold. The event has the verdict's id, and says how many ranks there are.
func TestVerdictOfThousandsIsTold(t *testing.T) {
	for name, char := range map[string]string{"plain": "h", "control characters": "\x01"} {
		v := verdict.Verdict{
			Reason: verdict.Mismatch, ID: "0123456789abcdef",
			Text: verdict.Sentence(strings.Repeat(char, 5000)),
		}
		for r := range 4096 {
			host := strings.Repeat("h", 64)
			rank := verdict.Rank{
				Job: r, Comm: r, Member: fmt.Sprintf("%s-%d", host, 1<<20+r), Host: host, PID: 1<<20 + r,
			}
			v.Victims = append(v.Victims, verdict.Wait{
				Rank: rank, Name: strings.Repeat(char, 255), Call: "all_reduce",
				Seq: 1 << 40,
			})
			v.Evidence = append(v.Evidence, verdict.Sentence(strings.Repeat(char, 500)))
			if r%2 == 0 {
				v.Culprits = append(v.Culprits, rank)
			}
		}
		b := bus.New(bus.Config{})
		defer b.Close()
		events := b.Attach(bus.Filter{}, "")
		defer events.Close()
		if err := b.Publish(verdictEvent(&verdict.Change{Kind: verdict.Opened, Verdict: v}, time.Time{},
			time.Time{})); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ev, err := events.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got verdictData
		if err := json.Unmarshal(ev.JSON(), &got); err != nil {
			t.Fatal(err)
		}
		if got.ID != v.ID || got.CulpritsTotal != 2048 || got.VictimsTotal != 4096 {
			t.Errorf("%s: told is verdict %s, %d culprits, %d wait; want %s, 2048, 4096",
				name, got.ID, got.CulpritsTotal, got.VictimsTotal, v.ID)
		}
		if len(got.Culprits) == 0 || len(got.Victims) == 0 || got.Victims[0].Rank != v.Victims[0].Rank {
			t.Errorf("%s: %d culprits and %d who wait are listed, want the first of them", name, len(got.Culprits),
				len(got.Victims))
		}
	}
}

// TestCause: a communicator that fails because of an open verdict is a symptom of it.
func TestCause(t *testing.T) {
	a := newTestAgent(t)
	var told bus.Event
	a.cfg.Event = func(ev bus.Event, _ bool) { told = ev }
	mine, other := lifecycle.CommID{1}, lifecycle.CommID{2}
	fails := func(code lifecycle.Code) string {
		a.commFailed(a.self, &tape.Event{
			IsLife: true, Comm: tape.CommInfo{ID: mine, Name: "world"},
			Life: tape.LifeRecord{Code: code, Peer: -1},
		})
		return told.Cause
	}
	for name, tc := range map[string]struct {
		open    verdict.Verdict
		code    lifecycle.Code
		symptom bool
	}{
		"its own":   {verdict.Verdict{Reason: verdict.NotEntered, Comm: mine}, lifecycle.CodeAbandoned, true},
		"another's": {verdict.Verdict{Reason: verdict.NotEntered, Comm: other}, lifecycle.CodeAbandoned, false},
		"one that it is in": {verdict.Verdict{
			Reason: verdict.NotEntered, Comm: other,
			Victims: []verdict.Wait{{Comm: mine}},
		}, lifecycle.CodeAbandoned, true},
		"that it is slow":    {verdict.Verdict{Reason: verdict.Straggler, Comm: mine}, lifecycle.CodeSystem, false},
		"a death":            {verdict.Verdict{Reason: verdict.RankDead}, lifecycle.CodeRankDead, true},
		"a death, elsewhere": {verdict.Verdict{Reason: verdict.RankDead}, lifecycle.CodeSystem, false},
		"a death for which others wait elsewhere": {
			verdict.Verdict{Reason: verdict.RankDead, Comm: other},
			lifecycle.CodeRankDead, false,
		},
	} {
		tc.open.ID = "0123456789abcdef"
		a.open = []Open{{Verdict: tc.open}}
		want := ""
		if tc.symptom {
			want = VerdictKey(tc.open.ID)
		}
		if got := fails(tc.code); got != want {
			t.Errorf("%s: the cause is %q, want %q", name, got, want)
		}
	}
}

// TestSuspicionsAreNotTold: a process that answers late is not reported; a process that comes back is.
func TestSuspicionsAreNotTold(t *testing.T) {
	var told []string
	a := New(mesh.Member{Name: "a-1"}, func() verdict.Note { return verdict.Note{} }, Config{
		Event: func(ev bus.Event, _ bool) { told = append(told, strings.TrimPrefix(ev.Type, semconv.EventPrefix)) },
	})
	other := mesh.Member{Name: "b-1", Rank: 1}
	for _, e := range []mesh.Event{
		{Status: mesh.Status{State: mesh.Suspect}},
		{Status: mesh.Status{State: mesh.Alive}, Passing: true},
		{Status: mesh.Status{State: mesh.Suspect}},
		{Status: mesh.Status{State: mesh.Unreachable}},
		{Status: mesh.Status{State: mesh.Alive}},
	} {
		e.Member = other
		a.Member(e)
	}
	if got := strings.Join(told, " "); got != "rank.unreachable rank.resumed" {
		t.Errorf("told %q, want that it was out of reach and is back", got)
	}
}

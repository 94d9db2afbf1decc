package agent

import (
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestContinued: what goes on keeps its ID, whatever less is known of it by now.
func TestContinued(t *testing.T) {
	one, two := verdict.Rank{Job: 2, Comm: 2, Member: "b-2"}, verdict.Rank{Job: 3, Comm: 3, Member: "b-3"}
	comm := lifecycle.CommID{1}
	for _, c := range []struct {
		name      string
		open, now verdict.Verdict
		goesOn    bool
	}{
		{
			"a host comes back one process after the other",
			verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{one, two}},
			verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{two}},
			true,
		},
		{
			"of more and more a host hears that it can't reach them",
			verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{two}},
			verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{one, two}},
			true,
		},
		{
			"another process is out of reach",
			verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{one}},
			verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{two}},
			false,
		},
		{
			"who made a mistake has ended",
			verdict.Verdict{Reason: verdict.Mismatch, Comm: comm, Seq: 7, Culprits: []verdict.Rank{one}},
			verdict.Verdict{Reason: verdict.Mismatch, Comm: comm, Seq: 7, Culprits: []verdict.Rank{{Job: -1, Comm: 2}}},
			true,
		},
		{
			"somebody else made a mistake",
			verdict.Verdict{Reason: verdict.Mismatch, Comm: comm, Seq: 7, Culprits: []verdict.Rank{one}},
			verdict.Verdict{Reason: verdict.Mismatch, Comm: comm, Seq: 7, Culprits: []verdict.Rank{{Job: -1, Comm: 3}}},
			false,
		},
	} {
		got := continued([]verdict.Verdict{c.now}, []verdict.Verdict{c.open})
		if goesOn := got[0].ID() == c.open.ID(); goesOn != c.goesOn {
			t.Errorf("%s: it goes on: %v, want %v", c.name, goesOn, c.goesOn)
		}
	}
}

// TestContinuedOnce: of a host of which one of three processes is back, the two others are one verdict, as they were, and
// not two with one ID.
func TestContinuedOnce(t *testing.T) {
	ranks := []verdict.Rank{{Job: 1, Member: "b-1"}, {Job: 2, Member: "b-2"}, {Job: 3, Member: "b-3"}}
	open := verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: ranks}
	victim, other := verdict.Wait{Rank: verdict.Rank{Job: 0}, Seq: 7}, verdict.Wait{Rank: verdict.Rank{Job: 4}, Seq: 7}
	now := []verdict.Verdict{
		{Reason: verdict.RankUnreachable, Culprits: ranks[1:2], Victims: []verdict.Wait{victim}, Text: "rank 2"},
		{Reason: verdict.Deadlock},
		{Reason: verdict.RankUnreachable, Culprits: ranks[2:], Victims: []verdict.Wait{victim, other}, Text: "rank 3"},
	}
	got := continued(now, []verdict.Verdict{open})
	if len(got) != 2 || got[0].ID() != open.ID() || got[1].Reason != verdict.Deadlock {
		t.Fatalf("there are %v, want one that goes on, and the deadlock", got)
	}
	if v := got[0]; len(v.Culprits) != 2 || len(v.Victims) != 2 || v.Text != "rank 2; rank 3" {
		t.Errorf("it goes on as %+v, want both culprits, and each who waits once", v)
	}
}

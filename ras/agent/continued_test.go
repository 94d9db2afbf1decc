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

package verdict_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestKilledTogether: rank 1 is killed, and all others are told so. Rank 2 of the same machine ends soon after it. That
// is a cause of its own if somebody killed the two, and a consequence if a launcher ended all of the machine.
func TestKilledTogether(t *testing.T) {
	type ages = [6]time.Duration
	const s, ms = time.Second, time.Millisecond
	kill, term := verdict.Note{Killed: true}, verdict.Note{Told: true}
	killAlone, termAlone := verdict.Note{Killed: true, Alone: true}, verdict.Note{Told: true, Alone: true}
	for name, c := range map[string]struct {
		ago  ages // by rank: when its process ended; 0: it runs
		how  verdict.Note
		want []int
		soon bool
	}{
		"others live there":       {ages{1: 2 * s, 2: 1900 * ms}, kill, []int{1, 2}, false},
		"others may end, too":     {ages{1: 500 * ms, 2: 400 * ms}, kill, []int{1}, true},
		"all others ended, too":   {ages{1750 * ms, 2 * s, 1900 * ms}, kill, []int{1}, false},
		"after another end":       {ages{1: 2 * s, 2: 1900 * ms, 3: 5 * s}, kill, []int{3}, false},
		"a while later":           {ages{1: 2 * s, 2: 1400 * ms}, kill, []int{1}, false},
		"by SIGTERM":              {ages{1: 2 * s, 2: 1900 * ms}, term, []int{1}, false},
		"they alone":              {ages{1: 200 * ms, 2: 100 * ms}, killAlone, []int{1, 2}, false},
		"they alone, by SIGTERM":  {ages{1: 200 * ms, 2: 100 * ms}, termAlone, []int{1, 2}, false},
		"on their own, by errors": {ages{1: 2 * s, 2: 1900 * ms}, verdict.Note{}, []int{1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			first := slices.Index(c.ago[:], slices.Max(c.ago[:]))
			j := newJob(6).did(world, 7, allReduce, 6*s, 0, 1, 2, 3, 4, 5)
			for r := range j {
				n := &j[r]
				if r != first {
					n.Slots[0].State = lifecycle.StateFailed
					n.Slots[0].Failure = &verdict.Failure{
						Code: lifecycle.CodeRankDead, Peer: first, Wait: -1, Age: c.ago[first] - 10*ms,
					}
				}
				if c.ago[r] > 0 {
					n.Fate, n.FateAge = verdict.Dead, c.ago[r]
					n.Killed, n.Told, n.Alone = c.how.Killed, c.how.Told, c.how.Alone
				}
			}
			verdicts, soon := verdict.Diagnose(j)
			var got []int
			for _, v := range verdicts {
				if v.Reason != verdict.RankDead || len(v.Culprits) != 1 {
					t.Fatalf("got %v", v.String())
				}
				got = append(got, v.Culprits[0].Job)
			}
			if slices.Sort(got); !slices.Equal(got, c.want) || soon != c.soon {
				t.Errorf("got %v, soon %v; want %v, %v", got, soon, c.want, c.soon)
			}
		})
	}
}

package mem

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// desk joins ranks and keeps their outcomes.
type desk struct {
	*Meeting
	outcomes map[string][]*Outcome
}

func newDesk() *desk {
	return &desk{Meeting: New(), outcomes: map[string][]*Outcome{}}
}

func (d *desk) join(owner any, key string, rank, size int) (name string) {
	name = fmt.Sprintf("%s/%d by %v", key, rank, owner)
	d.Join(owner, key, rendezvous.Member{Rank: rank, Size: size, Host: fmt.Sprint(owner), PID: 1},
		[]byte{byte(rank)}, func(o *Outcome) {
			d.outcomes[name] = append(d.outcomes[name], o)
		})
	return name
}

// outcome returns the only outcome that a rank got.
func (d *desk) outcome(t *testing.T, name string) *Outcome {
	t.Helper()
	if len(d.outcomes[name]) != 1 {
		t.Fatalf("%s has %d outcomes", name, len(d.outcomes[name]))
	}
	return d.outcomes[name][0]
}

func TestARankThatLeftIsMissedByLaterExchanges(t *testing.T) {
	d := newDesk()
	d.join("a", "one", 0, 2)
	d.join("b", "one", 1, 2)
	d.Depart("b", rendezvous.Died, "")
	out := d.outcome(t, d.join("a", "two", 0, 2))
	if out.Failed == nil {
		t.Fatalf("%+v", out)
	}
	gone := out.Failed.Gone()
	if len(gone) != 1 || gone[0].Rank != 1 || !gone[0].Arrived.IsZero() || gone[0].How != rendezvous.Died {
		t.Errorf("gone: %+v", gone)
	}
}

func TestAnIntruderDoesNotTakeTheSeat(t *testing.T) {
	d := newDesk()
	first := d.join("a", "one", 0, 2)
	intruder := d.join("x", "one", 0, 2)
	for _, name := range []string{first, intruder} {
		if out := d.outcome(t, name); out.Failed == nil || len(out.Failed.Present()) != 2 {
			t.Errorf("%s: %+v", name, out)
		}
	}
	d.Depart("x", rendezvous.Died, "")
	if d.ranks[0].owner != "a" || d.ranks[0].member.How != rendezvous.Waiting {
		t.Errorf("rank 0's claim: %+v", d.ranks[0])
	}
}

func TestARankHasOneOwnerForAllKeys(t *testing.T) {
	d := newDesk()
	if out := d.outcome(t, d.join("a", "one", 0, 1)); len(out.Payloads) != 1 {
		t.Fatalf("%+v", out)
	}
	out := d.outcome(t, d.join("x", "two", 0, 1))
	if out.Failed == nil || len(out.Failed.Present()) != 2 || out.Failed.Members[0].Host != "a" ||
		out.Failed.Members[1].Host != "x" {
		t.Errorf("another owner of rank 0: %+v", out)
	}
}

func TestAStrangerCannotLeaveForARank(t *testing.T) {
	d := newDesk()
	name := d.join("a", "one", 0, 2)
	d.Leave("x", "one", 0, rendezvous.GaveUp, "")
	d.Leave("a", "two", 0, rendezvous.GaveUp, "")
	d.Leave("a", "one", 1, rendezvous.GaveUp, "")
	if len(d.outcomes[name]) != 0 {
		t.Errorf("%+v", d.outcomes[name])
	}
}

func TestTryingAgainAndAgainCostsLittle(t *testing.T) {
	d := newDesk()
	for i := range 1000 {
		d.join(i, "one", 0, 2)
	}
	if n := len(d.exchanges["one"].roll.Members); n > 2*2+16+1 {
		t.Errorf("%d members of 2 are kept", n)
	}
	for i := range maxKeys + 10 {
		d.join("a", fmt.Sprint("key ", i), 0, 2)
	}
	if len(d.exchanges) > maxKeys {
		t.Errorf("%d keys are kept", len(d.exchanges))
	}
	if out := d.outcome(t, d.join("a", "one more", 0, 2)); !strings.Contains(out.Refused, "too many keys") {
		t.Errorf("%+v", out)
	}
}

// TestEveryJoinEndsOnce makes random calls in random order: each join has exactly one outcome in the end, either all
// ranks succeed or none, and only with every rank's own payload.
func TestEveryJoinEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 3
		m := New()
		type joined struct {
			key      string
			rank     int
			outcomes []*Outcome
		}
		var all []*joined
		keys, owners := rapid.SampledFrom([]string{"k", "l"}), rapid.IntRange(0, 3)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			key, owner := keys.Draw(t, "key"), owners.Draw(t, "owner")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				m.Leave(owner, key, owner, rendezvous.GaveUp, "had enough")
			case 2:
				outcomes := 0
				m.Absent(key, rendezvous.Member{Rank: owner, Size: size}, rendezvous.Withdrew, "ill", func(o *Outcome) {
					if outcomes++; o.Payloads != nil {
						t.Error("an exchange succeeded without a rank")
					}
				})
				if outcomes != 1 {
					t.Errorf("a rank that won't come is told %d outcomes", outcomes)
				}
			case 1:
				m.Depart(owner, rapid.SampledFrom([]rendezvous.Departure{rendezvous.Died, rendezvous.Closed}).Draw(t,
					"how"), "")
			default:
				rank := owner
				if rapid.IntRange(0, 7).Draw(t, "wrong rank") == 0 {
					rank = rapid.IntRange(-1, size).Draw(t, "rank")
				}
				says := size
				if rapid.IntRange(0, 15).Draw(t, "wrong size") == 0 {
					says = rapid.IntRange(1, 5).Draw(t, "size")
				}
				j := &joined{key: key, rank: rank}
				all = append(all, j)
				m.Join(owner, key, rendezvous.Member{Rank: rank, Size: says, Host: "h", PID: owner}, []byte{byte(rank)},
					func(o *Outcome) { j.outcomes = append(j.outcomes, o) })
			}
		}
		m.Forget("the end")
		won := map[string]map[int]bool{}
		for _, j := range all {
			if len(j.outcomes) != 1 {
				t.Fatalf("rank %d in %q has %d outcomes", j.rank, j.key, len(j.outcomes))
			}
			out := j.outcomes[0]
			switch {
			case out.Failed != nil:
				err := out.Failed.Err(j.rank, time.Now(), nil)
				if err == nil || err.Error() == "" {
					t.Fatal("a failure without a story")
				}
			case out.Refused == "":
				if won[j.key] == nil {
					won[j.key] = map[int]bool{}
				}
				if won[j.key][j.rank] {
					t.Fatalf("two ranks %d completed %q", j.rank, j.key)
				}
				won[j.key][j.rank] = true
				for rank, payload := range out.Payloads {
					if len(payload) != 1 || int(payload[0]) != rank {
						t.Fatalf("payload of rank %d is %v", rank, payload)
					}
				}
				if j.rank >= len(out.Payloads) {
					t.Fatalf("rank %d completed an exchange of %d", j.rank, len(out.Payloads))
				}
				won[j.key][-1-len(out.Payloads)] = true // remembers the size
			}
		}
		for key, ranks := range won {
			for rank := range ranks {
				if rank < 0 && len(ranks) != -1-rank+1 {
					t.Fatalf("%q of %d completed for %d ranks", key, -1-rank, len(ranks)-1)
				}
			}
		}
	})
}

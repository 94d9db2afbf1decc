package sim_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// ask asks all members, and sorts the answers by which member gave them.
func ask(t *testing.T, r *sim.Rank, limit time.Duration) (own, forOthers map[string]mesh.Answer, missing []string,
	took time.Duration,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	q, err := r.Mesh.Ask(ctx, []byte("well?"))
	if err != nil {
		t.Fatal(err)
	}
	own, forOthers = make(map[string]mesh.Answer), make(map[string]mesh.Answer)
	for a := range q {
		if a.By == a.From {
			own[a.From] = a
		} else {
			forOthers[a.From] = a
		}
	}
	took = time.Since(began)
	for _, st := range r.Mesh.Members() {
		name := st.Member.Name
		if _, ok := own[name]; !ok && forOthers[name].By == "" {
			missing = append(missing, name)
		}
	}
	return own, forOthers, missing, took
}

func TestAskReachesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 10, lan, 10, 8, mesh.LAN())
		own, _, missing, took := ask(t, j.Ranks[17], 5*time.Second)
		if len(own) != 80 || len(missing) != 0 {
			t.Fatalf("%d of 80 answered, missing %v", len(own), missing)
		}
		for _, a := range own {
			if string(a.Body) != "re: well?" {
				t.Errorf("%s answered %q", a.From, a.Body)
			}
		}
		t.Logf("80 members answered within %v", took)
	})
}

func TestNeighboursAnswerForTheDeadAndTheStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 11, lan, 5, 8, mesh.LAN())
		dead, stopped := j.Ranks[9], j.Ranks[20]
		from := time.Now()
		dead.Process.Kill(process.Exit{})
		stopped.Process.Stop()
		told(t, j, 5*time.Second, from, mesh.Stopped, stopped.Name(), dead, stopped)
		own, forOthers, missing, took := ask(t, j.Ranks[0], 5*time.Second)
		if len(own) != 38 || len(forOthers) != 2 || len(missing) != 0 {
			t.Fatalf("%d answered, for others %v, missing %v", len(own), forOthers, missing)
		}
		for _, r := range []*sim.Rank{dead, stopped} {
			name := r.Name()
			if got := string(forOthers[name].Body); got != "the tape of "+name {
				t.Errorf("for %s came %q", name, got)
			}
		}
		t.Logf("answered within %v", took)
	})
}

// TestAnInnerNodeThatDoesNotAnswerLosesNobody: the first member of a part of the tree is stopped, and no member knows
// yet. The members behind it are asked directly, and a neighbour answers for it.
func TestAnInnerNodeThatDoesNotAnswerLosesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 12, lan, 10, 8, mesh.LAN())
		stopped := j.Ranks[10]
		stopped.Process.Stop()
		own, forOthers, missing, took := ask(t, j.Ranks[0], 2*time.Second)
		if len(own) != 79 || len(forOthers) != 1 || len(missing) != 0 {
			t.Fatalf("%d answered, for others %v, missing %v", len(own), forOthers, missing)
		}
		t.Logf("answered within %v", took)
	})
}

func TestWhoCannotBeAskedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 13, lan, 3, 2, mesh.LAN())
		from := time.Now()
		gone := j.Ranks[4:]
		for _, r := range gone {
			r.Process.Kill(process.Exit{})
		}
		for _, r := range gone {
			told(t, j, 10*time.Second, from, mesh.Dead, r.Name(), gone...)
		}
		own, _, missing, took := ask(t, j.Ranks[0], 5*time.Second)
		want := []string{gone[0].Name(), gone[1].Name()}
		if len(own) != 4 || !slices.Equal(missing, want) {
			t.Fatalf("%d answered, missing %v, want %v", len(own), missing, want)
		}
		if took > time.Second {
			t.Errorf("it took %v, with nobody left to wait for", took)
		}
	})
}

package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// start starts machines with ranks each; they are closed when the test ends.
func start(t *testing.T, seed uint64, link sim.Link, machines, each int, tuning mesh.Tuning) *sim.Job {
	t.Helper()
	j, err := sim.StartJob(t.Context(), sim.JobConfig{
		Seed: seed, Link: link, Machines: machines, Each: each, Tuning: tuning,
		Member: func(_ *sim.Rank, c *mesh.Config) {
			c.Handler = func(_ context.Context, _ string, q []byte) []byte { return append([]byte("re: "), q...) }
			c.LocalNote = func(o mesh.Member) []byte { return []byte("the tape of " + o.Name) }
		},
	})
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// told is how long after from the last rank, but for the excepted ones, was told that a member is in a state.
func told(
	t *testing.T, j *sim.Job, limit time.Duration, from time.Time, state mesh.State, name string, except ...*sim.Rank,
) time.Duration {
	t.Helper()
	_, last, err := j.WaitTold(limit, from, state, name, except...)
	if err != nil {
		t.Fatal(err)
	}
	return last
}

package sim_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// members is how many TestScale runs: 512 are the 4,096 ranks of a job with one member for each eight.
var members = flag.Int("members", 64, "how many members TestScale has, a multiple of eight")

// TestScale: half a minute without a false event, then a kill, a stop, and a question to all.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 8
		s, err := measureScale(t.Context(), sim.JobConfig{
			Seed: 20, Link: lan, Machines: *members / each, Each: each, Tuning: mesh.LAN(),
		}, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", s)
		if s.False > 0 {
			t.Errorf("%d events while nothing happened", s.False)
		}
		if s.KilledFirst > 100*time.Millisecond || s.KilledLast > 2*time.Second {
			t.Errorf("a kill was told after %v to %v, want 100ms to 2s", s.KilledFirst, s.KilledLast)
		}
		if s.StoppedLast > 5*time.Second {
			t.Errorf("a stop was told after %v, want 5s", s.StoppedLast)
		}
		if s.Answered != *members-2 || s.ForOthers != 2 || s.Missing != 0 {
			t.Errorf("%d answered, for %d others, %d missing; want all but two, and those two", s.Answered, s.ForOthers,
				s.Missing)
		}
		if limit := 2500.0; s.Bytes > limit {
			t.Errorf("idle, a member sends %.0f bytes a second, want at most %.0f", s.Bytes, limit)
		}
	})
}

// scale is what one simulated job showed. Times are virtual.
type scale struct {
	Members int
	// Packets and Bytes are what each member sent a second, on average, while nothing happened.
	Packets, Bytes float64
	// False counts the events while nothing happened: there is nothing to tell.
	False int
	// KilledFirst and KilledLast are how long after a kill the first and the last of the others were told, and so on.
	KilledFirst, KilledLast   time.Duration
	StoppedFirst, StoppedLast time.Duration
	ResumedFirst, ResumedLast time.Duration
	// Answered is how many members answered a question to all, ForOthers for how many others a neighbour answered,
	// Missing how many gave no answer, and AskTime and AskBytes what that took.
	Answered, ForOthers, Missing int
	AskTime                      time.Duration
	AskBytes                     uint64
}

// measureScale starts a job, lets it do nothing for quiet, kills a process, stops one, asks all a question, and lets
// the stopped one run again. It must be called in a bubble of synctest.
func measureScale(ctx context.Context, c sim.JobConfig, quiet time.Duration) (s scale, err error) {
	if c.Each < 2 || c.Machines*c.Each < 4 {
		return scale{}, fmt.Errorf("%d machines with %d members each, want two on each and four in all",
			c.Machines, c.Each)
	}
	c.Member = func(_ *sim.Rank, c *mesh.Config) {
		c.Handler = func(context.Context, string, []byte) []byte { return []byte("here") }
		c.LocalNote = func(of mesh.Member) []byte { return []byte("the tape of " + of.Name) }
	}
	j, err := sim.StartJob(ctx, c)
	defer func() {
		if e := j.Close(); err == nil {
			err = e
		}
	}()
	if err != nil {
		return scale{}, err
	}
	s.Members = len(j.Ranks)
	time.Sleep(10*time.Second + time.Duration(s.Members)*100*time.Millisecond) // the last of the news of the joining

	from := time.Now()
	packets, bytes := j.Network.Traffic()
	time.Sleep(quiet)
	p, b := j.Network.Traffic()
	per := float64(s.Members) * quiet.Seconds()
	s.Packets, s.Bytes = float64(p-packets)/per, float64(b-bytes)/per
	for _, r := range j.Ranks {
		s.False += len(r.Since(from))
	}

	killed, stopped := j.Ranks[s.Members/4], j.Ranks[s.Members/2]
	const limit = time.Minute
	from = time.Now()
	killed.Process.Kill(process.Exit{})
	if s.KilledFirst, s.KilledLast, err = j.WaitTold(limit, from, mesh.Dead, killed.Name(), killed); err != nil {
		return s, err
	}
	from = time.Now()
	stopped.Process.Stop()
	s.StoppedFirst, s.StoppedLast, err = j.WaitTold(limit, from, mesh.Stopped, stopped.Name(), killed, stopped)
	if err != nil {
		return s, err
	}
	if err := s.ask(ctx, j); err != nil {
		return s, err
	}
	from = time.Now()
	stopped.Process.Continue()
	s.ResumedFirst, s.ResumedLast, err = j.WaitTold(limit, from, mesh.Alive, stopped.Name(), killed, stopped)
	return s, err
}

// ask has the first rank ask all members.
func (s *scale) ask(ctx context.Context, j *sim.Job) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, before := j.Network.Traffic()
	began := time.Now()
	q, err := j.Ranks[0].Mesh.Ask(ctx, []byte("where are you?"))
	if err != nil {
		return fmt.Errorf("ask all: %w", err)
	}
	for a := range q {
		if a.By == a.From {
			s.Answered++
		} else {
			s.ForOthers++
		}
	}
	_, after := j.Network.Traffic()
	s.Missing, s.AskTime, s.AskBytes = s.Members-s.Answered-s.ForOthers, time.Since(began), after-before
	return nil
}

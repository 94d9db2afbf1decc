package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Scale is what one simulated job showed. Times are virtual.
type Scale struct {
	Members int
	// Packets and Bytes are what each member sent a second, on average, while nothing happened.
	Packets, Bytes float64
	// False counts the events while nothing happened: there is nothing to tell.
	False int
	// KilledFirst and KilledLast are how long after a kill the first and the last of the others were told, and so on.
	KilledFirst, KilledLast   time.Duration
	StoppedFirst, StoppedLast time.Duration
	ResumedFirst, ResumedLast time.Duration
	// Answered is how many answered a question to all, ForOthers for how many others a neighbour answered, Missing who
	// did not, and AskTime and AskBytes what that took.
	Answered, ForOthers, Missing int
	AskTime                      time.Duration
	AskBytes                     uint64
}

// MeasureScale starts a job, lets it do nothing for quiet, kills a process, stops one, asks all a question, and lets
// the stopped one run again. It must be called in a bubble of synctest.
func MeasureScale(ctx context.Context, c JobConfig, quiet time.Duration) (s Scale, err error) {
	if c.Each < 2 || c.Machines*c.Each < 4 {
		return Scale{}, fmt.Errorf("sim: %d machines with %d members each, want two on each and four in all", c.Machines, c.Each)
	}
	if c.Handler == nil {
		c.Handler = func(*Rank, string, []byte) []byte { return []byte("here") }
	}
	if c.LocalNote == nil {
		c.LocalNote = func(_ *Rank, of mesh.Member) []byte { return []byte("the tape of " + of.Name) }
	}
	j, err := StartJob(ctx, c)
	defer func() {
		if e := j.Close(); err == nil {
			err = e
		}
	}()
	if err != nil {
		return Scale{}, err
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
	if s.KilledFirst, s.KilledLast, err = j.WaitTold(limit, from, mesh.Died, killed.Name(), killed); err != nil {
		return s, err
	}
	from = time.Now()
	stopped.Process.Stop()
	s.StoppedFirst, s.StoppedLast, err = j.WaitTold(limit, from, mesh.Halted, stopped.Name(), killed, stopped)
	if err != nil {
		return s, err
	}
	if err := s.ask(ctx, j); err != nil {
		return s, err
	}
	from = time.Now()
	stopped.Process.Continue()
	s.ResumedFirst, s.ResumedLast, err = j.WaitTold(limit, from, mesh.Resumed, stopped.Name(), killed, stopped)
	return s, err
}

// ask has the first rank ask all.
func (s *Scale) ask(ctx context.Context, j *Job) error {
	ctx, cancel := context.WithTimeout(ctx, mesh.DefaultAskTime)
	defer cancel()
	_, before := j.Network.Traffic()
	began := time.Now()
	q, err := j.Ranks[0].Mesh.Ask(ctx, []byte("where are you?"))
	if err != nil {
		return fmt.Errorf("sim: ask all: %w", err)
	}
	for a := range q.Answers() {
		if a.By == a.From {
			s.Answered++
		} else {
			s.ForOthers++
		}
	}
	_, after := j.Network.Traffic()
	s.Missing, s.AskTime, s.AskBytes = len(q.Missing()), time.Since(began), after-before
	return nil
}

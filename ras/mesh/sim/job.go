package sim

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
)

// JobConfig is a job to simulate.
type JobConfig struct {
	Seed     uint64 // determines everything; see the package
	Link     Link   // between machines
	Machines int
	Each     int         // members on each machine
	Tuning   mesh.Tuning // the zero value is mesh.OneMachine

	// Member completes the configuration of each member with its Handler, LocalNote and OnEvent. It may be nil. While
	// members start and join, their Rank has no Mesh yet.
	Member func(r *Rank, c *mesh.Config)
}

// Job is a job of real meshes on a simulated network.
type Job struct {
	Network  *Network
	Machines []*Machine
	Ranks    []*Rank // by rank: the first Each on the first machine, and so on

	end func() // makes math/rand's global source random again; nil if it is
}

// Rank is one member of a job.
type Rank struct {
	Process *Process
	Mesh    *mesh.Mesh

	mu   sync.Mutex
	told []Told
}

// Told is an event and when its mesh reported it, by the bubble's clock.
type Told struct {
	mesh.Event
	At time.Time
}

// settleTime is how long the members of a job may take to know each other: gossip takes a second, and what it missed
// comes with an exchange of full states, every few minutes in a large job.
const settleTime = 10 * time.Minute

// startGap is the average time from the start of one member to the start of the next.
const startGap = 100 * time.Microsecond

// StartJob starts the members, joins them to the first, and returns when all know each other. The job is never nil; the
// caller closes it, even on an error.
func StartJob(ctx context.Context, c JobConfig) (*Job, error) {
	j := &Job{Network: newNetwork(c.Seed, c.Link)}
	var err error
	if j.end, err = seedGlobal(c.Seed); err != nil {
		return j, err
	}
	if c.Tuning == (mesh.Tuning{}) {
		c.Tuning = mesh.OneMachine()
	}
	// Intervals that are multiples of each other would meet again and again, and what happens at one instant happens in
	// no order. No two clocks tick alike anyway.
	c.Tuning.ProbeInterval += 1 * time.Nanosecond
	c.Tuning.CheckInterval += 3 * time.Nanosecond
	starts := mathrand.New(mathrand.NewPCG(c.Seed, streamStarts))
	for i := range c.Machines {
		host := j.Network.machine(i + 1)
		j.Machines = append(j.Machines, host)
		for range c.Each {
			time.Sleep(startGap/2 + time.Duration(starts.Int64N(int64(startGap)))) // no two tick at one instant
			if err := j.start(&c, host); err != nil {
				return j, fmt.Errorf("sim: start rank %d: %w", len(j.Ranks), err)
			}
		}
	}
	for i, r := range j.Ranks[1:] {
		if _, err := r.Mesh.Join(ctx, j.Ranks[0].Mesh.Self().Addr); err != nil {
			return j, fmt.Errorf("sim: join rank %d: %w", i+1, err)
		}
	}
	if !Until(settleTime, func() bool {
		return !slices.ContainsFunc(j.Ranks, func(r *Rank) bool { return len(r.Mesh.Members()) != len(j.Ranks) })
	}) {
		return j, fmt.Errorf("sim: not all members know each other after %v", settleTime)
	}
	return j, nil
}

func (j *Job) start(c *JobConfig, host *Machine) error {
	r := &Rank{Process: host.Start(len(j.Ranks), c.Machines*c.Each)}
	config := mesh.Config{
		Self: r.Process.Member(), Secret: make([]byte, mesh.SecretSize), Job: "simulation", Tuning: c.Tuning,
		Host: r.Process, Transport: r.Process.Transport(), Rand: r.Process.Rand(), OnEvent: func(mesh.Event) {},
	}
	if c.Member != nil {
		c.Member(r, &config)
	}
	also := config.OnEvent
	config.OnEvent = func(e mesh.Event) {
		r.mu.Lock()
		r.told = append(r.told, Told{e, time.Now()})
		r.mu.Unlock()
		also(e)
	}
	m, err := mesh.Start(config)
	if err != nil {
		return err
	}
	r.Mesh = m
	j.Ranks = append(j.Ranks, r)
	return nil
}

// Close continues stopped processes, closes all meshes, and waits, in virtual time, for memberlist's last goroutines.
func (j *Job) Close() error {
	var closing sync.WaitGroup
	errs := make([]error, len(j.Ranks))
	for i, r := range j.Ranks {
		closing.Go(func() {
			r.Process.Continue()
			errs[i] = r.Mesh.Close()
		})
	}
	closing.Wait()
	// memberlist's last probes end with their timers, which stand still when the bubble's function returns.
	time.Sleep(time.Minute)
	if j.end != nil {
		j.end()
		j.end = nil
	}
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("sim: close rank %d: %w", i, err)
		}
	}
	return nil
}

// Name is the member's name.
func (r *Rank) Name() string { return r.Process.Member().Name }

// Since lists what the rank's mesh reported from a time on, in order.
func (r *Rank) Since(from time.Time) (told []Told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.told {
		if !e.At.Before(from) {
			told = append(told, e)
		}
	}
	return told
}

// WaitTold waits until each rank's mesh, but for those of except, has reported that a member is in a state now. It
// returns when, after from, the first and the last of them did. It fails if that takes longer than limit.
func (j *Job) WaitTold(
	limit time.Duration, from time.Time, state mesh.State, name string, except ...*Rank,
) (first, last time.Duration, err error) {
	first = limit
	for i, r := range j.Ranks {
		if slices.Contains(except, r) {
			continue
		}
		var at time.Time
		if !Until(limit-time.Since(from), func() bool {
			told := r.Since(from)
			i := slices.IndexFunc(told, func(e Told) bool {
				return e.Member.Name == name && e.State == state && !e.Joined
			})
			if i >= 0 {
				at = told[i].At
			}
			return i >= 0
		}) {
			return 0, 0, fmt.Errorf("sim: rank %d was not told within %v that %s is %v; it was told %v",
				i, limit, name, state, r.Since(from))
		}
		first, last = min(first, at.Sub(from)), max(last, at.Sub(from))
	}
	return first, last, nil
}

// Until checks ok every few milliseconds of virtual time, for at most limit. It reports whether ok was true.
func Until(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

package jobsim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config is a job to simulate.
type Config struct {
	Seed     uint64
	Shape    Shape
	Machines int         // the members are spread over them evenly, and must be a multiple of them
	Link     sim.Link    // between machines
	Tuning   mesh.Tuning // of the meshes; the zero value is mesh.OneMachine
	Timing   agent.Timing
	Stall    time.Duration // the age from which an operation stalls; default stall.DefaultFloor
}

// Job is a running job. Its methods must be called within one bubble of synctest.
type Job struct {
	*sim.Job
	Model  *Model
	Agents []*agent.Agent // by member

	config  Config
	stop    context.CancelFunc
	end     []context.CancelFunc // by member: of its agent
	running sync.WaitGroup

	mu     sync.Mutex
	told   []Told
	opened map[string]*spread
}

// Told is what an agent told receivers outside of the job of a verdict, and when.
type Told struct {
	At      time.Time
	By      int // the member
	Stage   bus.Stage
	Key     string
	Verdict verdict.Verdict
}

// String is "opened rank_dead of host1-1 ranks [0 1] by member 3".
func (t *Told) String() string {
	return fmt.Sprintf("%v by member %d: %v %s", t.Stage, t.By, t.Verdict.Reason, t.Verdict.Text)
}

// spread is when the first and the last member came to know a verdict.
type spread struct{ first, last time.Time }

// lookTime is how often a process looks for stalls: a quarter of the age at which something is slow, as a node does.
const lookTime = stall.DefaultSlow / 4

// clock is CLOCK_MONOTONIC of all processes.
func clock() int64 { return time.Now().UnixNano() }

// Start starts a job, and returns when its members know each other. The caller closes it, also if it fails: it is never
// nil.
func Start(ctx context.Context, c Config) (*Job, error) {
	if c.Stall == 0 {
		c.Stall = stall.DefaultFloor
	}
	j := &Job{Job: &sim.Job{}, config: c, stop: func() {}, opened: map[string]*spread{}}
	if c.Machines < 1 || c.Shape.Members%c.Machines != 0 || c.Shape.Members < 1 || c.Shape.Ranks < 1 {
		return j, fmt.Errorf("jobsim: %d members of %d ranks on %d machines, want as many on each", c.Shape.Members, c.Shape.Ranks, c.Machines)
	}
	j.Model = NewModel(c.Seed, c.Shape, clock)
	j.Agents = make([]*agent.Agent, c.Shape.Members)
	j.end = make([]context.CancelFunc, c.Shape.Members)
	var failed error
	of := func(r *sim.Rank) *agent.Agent { // members start one after the other, and each is asked for the first time by Start
		i := r.Process.Member().Rank
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.Agents[i] == nil {
			j.Agents[i], failed = j.newAgent(r, i)
		}
		return j.Agents[i]
	}
	var err error
	j.Job, err = sim.StartJob(ctx, sim.JobConfig{
		Seed: c.Seed, Link: c.Link, Machines: c.Machines, Each: c.Shape.Members / c.Machines, Tuning: c.Tuning,
		Handler: func(r *sim.Rank, from string, question []byte) []byte {
			r.Process.Gate()
			return of(r).Handle(ctx, from, question)
		},
		LocalNote: func(r *sim.Rank, m mesh.Member) []byte { r.Process.Gate(); return of(r).LocalNote(m) },
		OnEvent:   func(r *sim.Rank, e mesh.Event) { r.Process.Gate(); of(r).Member(e) },
	})
	if err != nil {
		return j, err
	}
	if failed != nil {
		return j, failed
	}
	ctx, j.stop = context.WithCancel(ctx)
	for i, r := range j.Ranks {
		time.Sleep(lookTime / time.Duration(len(j.Ranks))) // processes don't look all at one moment
		one, end := context.WithCancel(ctx)
		a := of(r)
		j.end[i] = end
		j.running.Go(func() { a.Run(one, r.Mesh) })
		j.running.Go(func() { j.watch(one, i, r.Process, a) })
	}
	j.Model.Restart() // while they joined, time went by
	return j, nil
}

func (j *Job) newAgent(r *sim.Rank, i int) (*agent.Agent, error) {
	return agent.New(agent.Config{
		Self: r.Process.Member(), Now: clock, Timing: j.config.Timing,
		Slots: func(buf []tape.Slot) []tape.Slot { r.Process.Gate(); return j.Model.Slots(i, buf) },
		Local: func(m mesh.Member) (verdict.Note, bool) {
			n := verdict.Note{Member: m.Name, Host: m.Host, PID: m.PID, Rank: m.Rank, JobSize: m.JobSize}
			now := clock()
			for _, s := range j.Model.Slots(m.Rank, nil) {
				n.Slots = append(n.Slots, verdict.SlotOf(&s, now))
			}
			return n, true
		},
		Event: func(ev bus.Event, outward bool) { r.Process.Gate(); j.hear(r, i, &ev, outward) },
	})
}

// watch is what a process does beside: it reads its tape, and looks for stalls.
func (j *Job) watch(ctx context.Context, i int, p *sim.Process, a *agent.Agent) {
	w, err := stall.New(stall.Config{Floor: j.config.Stall, Slow: min(stall.DefaultSlow, j.config.Stall)})
	if err != nil {
		panic(err) // the default with another floor
	}
	timer := time.NewTimer(lookTime / time.Duration(2*len(j.Ranks))) // not when the agent has something to do, either
	defer timer.Stop()
	var slots []tape.Slot
	var reports []stall.Report
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		p.Gate()
		j.Model.Events(i, func(ev *tape.Event) { w.Observe(ev); a.Observe(ev) })
		slots = j.Model.Slots(i, slots[:0])
		reports = w.Check(slots, clock(), reports[:0])
		for k := range reports {
			a.ObserveStall(&reports[k])
		}
		timer.Reset(lookTime)
	}
}

// hear notes what an agent tells.
func (j *Job) hear(r *sim.Rank, i int, ev *bus.Event, outward bool) {
	switch ev.Type {
	case semconv.EventVerdictOpened, semconv.EventVerdictChanged, semconv.EventVerdictWithdrawn:
	default:
		return
	}
	if r.Process.Ended() {
		return
	}
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if ev.Stage == bus.Opened {
		s := j.opened[ev.Key]
		if s == nil {
			s = &spread{first: now}
			j.opened[ev.Key] = s
		}
		s.last = now
	}
	if !outward {
		return
	}
	t := Told{At: now, By: i, Stage: ev.Stage, Key: ev.Key}
	if b, err := json.Marshal(ev.Data); err == nil {
		if err := json.Unmarshal(b, &t.Verdict); err != nil {
			t.Verdict.Text = fmt.Sprintf("can't be read: %v", err) // a receiver could not read it either; the reason is none
		}
	}
	j.told = append(j.told, t)
}

// Told is what receivers outside of the job were told so far, in order.
func (j *Job) Told() []Told {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.told)
}

// Known is when the first and the last member came to know a verdict.
func (j *Job) Known(key string) (first, last time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := j.opened[key]; s != nil {
		return s.first, s.last
	}
	return time.Time{}, time.Time{}
}

// AllHold tells whether all members that run, but those that except is true of, know of exactly the open verdicts with
// these keys.
func (j *Job) AllHold(except func(member int) bool, keys ...string) bool {
	want := slices.Sorted(slices.Values(keys))
	for i, a := range j.Agents {
		if j.Ranks[i].Process.Ended() || except != nil && except(i) {
			continue
		}
		var have []string
		for _, o := range a.Open() {
			have = append(have, agent.VerdictKey(o.ID()))
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			return false
		}
	}
	return true
}

// Machine is that of a member.
func (j *Job) Machine(member int) int { return member / (len(j.Ranks) / j.config.Machines) }

// Kill kills a member's process, and Stop stops it until Continue.
func (j *Job) Kill(member int, exit process.Exit) {
	j.Model.Kill(member)
	j.Ranks[member].Process.Kill(exit)
	j.end[member]()
}

// Stop stops a member's process, as SIGSTOP does.
func (j *Job) Stop(member int) {
	j.Model.Stop(member)
	j.Ranks[member].Process.Stop()
}

// Continue lets it run again.
func (j *Job) Continue(member int) {
	j.Ranks[member].Process.Continue()
	j.Model.Continue(member)
}

// Cut parts a machine from all others, for RAS and for the job's data; apart false joins it again.
func (j *Job) Cut(machine int, apart bool) {
	for i := range j.Machines {
		if i != machine {
			j.Network.Cut(j.Machines[machine], j.Machines[i], apart)
		}
	}
	j.Model.Part(func(member int) int {
		if apart && j.Machine(member) == machine {
			return 1
		}
		return 0
	})
}

// Close ends the job, and waits in virtual time until all of it has ended.
func (j *Job) Close() error {
	for _, r := range j.Ranks {
		r.Process.Continue()
	}
	j.stop()
	j.running.Wait()
	return j.Job.Close()
}

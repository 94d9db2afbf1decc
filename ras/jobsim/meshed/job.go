package meshed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
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
}

// Job is a running job. Its methods must be called within one bubble of synctest.
type Job struct {
	*sim.Job
	Model  *Model
	Agents []*agent.Agent // by member

	observers []*observer // by member

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
const lookTime = model.DefaultSlow / 4

// clock is CLOCK_MONOTONIC of all processes.
func clock() int64 { return time.Now().UnixNano() }

// Start starts a job, and returns when its members know each other. The caller closes it, also if it fails: it is never
// nil.
func Start(ctx context.Context, c Config) (*Job, error) {
	j := &Job{Job: &sim.Job{}, config: c, stop: func() {}, opened: map[string]*spread{}}
	if c.Machines < 1 || c.Shape.Members%c.Machines != 0 || c.Shape.Members < 1 || c.Shape.Ranks < 1 {
		return j, fmt.Errorf("jobsim: %d members of %d ranks on %d machines, want as many on each", c.Shape.Members,
			c.Shape.Ranks, c.Machines)
	}
	j.Model = NewModel(c.Seed, c.Shape, c.Machines, clock)
	j.Agents = make([]*agent.Agent, c.Shape.Members)
	j.observers = make([]*observer, c.Shape.Members)
	j.end = make([]context.CancelFunc, c.Shape.Members)
	var failed error
	// Members start one after the other, and each is asked for the first time by Start.
	of := func(r *sim.Rank) *agent.Agent {
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

// observer is what a process does beside: it reads its tape, and looks for stalls.
type observer struct {
	mu    sync.Mutex
	model *model.Process
	watch *stall.Watch
	slots []tape.Slot
}

func (j *Job) newAgent(r *sim.Rank, i int) (*agent.Agent, error) {
	p := model.New(model.Limits{})
	j.observers[i] = &observer{model: p, watch: stall.New(p)}
	return agent.New(agent.Config{
		Self:   r.Process.Member(),
		Note:   func() verdict.Note { r.Process.Gate(); return j.note(i, r.Process.Member()) },
		Local:  func(m mesh.Member) (verdict.Note, bool) { return j.note(m.Rank, m), true },
		HeldUp: func() bool { return j.observers[i].heldUp() },
		Event:  func(ev bus.Event, outward bool) { r.Process.Gate(); j.hear(r, i, &ev, outward) },
	})
}

// read brings the model of a process up to now.
func (j *Job) read(i int, a *agent.Agent) *observer {
	o := j.observers[i]
	j.Model.Events(i, func(ev *tape.Event) {
		if s := o.model.Apply(ev); s.Failed && a != nil {
			a.Failed(&s)
		}
	})
	o.slots = j.Model.Slots(i, o.slots[:0])
	o.model.Look(o.slots, nil)
	o.model.Forget()
	return o
}

// note is what a process says of itself, or its tape does.
func (j *Job) note(i int, m mesh.Member) verdict.Note {
	o := j.observers[i]
	o.mu.Lock()
	defer o.mu.Unlock()
	n := verdict.Note{Member: m.Name, Host: m.Host, PID: m.PID, Rank: m.Rank, JobSize: m.JobSize}
	n.Fold(j.read(i, nil).model, clock())
	return n
}

func (o *observer) heldUp() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return verdict.AnyHeldUp(o.model, clock())
}

// watch looks for stalls, again and again.
func (j *Job) watch(ctx context.Context, i int, p *sim.Process, a *agent.Agent) {
	timer := time.NewTimer(lookTime / time.Duration(2*len(j.Ranks))) // not when the agent has something to do, either
	defer timer.Stop()
	last := clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		p.Gate()
		o := j.observers[i]
		o.mu.Lock()
		now := clock()
		if now-last > int64(4*lookTime) { // it was stopped
			o.model.Resumed(now)
		}
		last = now
		news := slices.ContainsFunc(j.read(i, a).watch.Check(now), stall.Report.News)
		o.mu.Unlock()
		if news {
			a.Trouble()
		}
		timer.Reset(lookTime)
	}
}

// hear notes what an agent tells.
func (j *Job) hear(r *sim.Rank, i int, ev *bus.Event, outward bool) {
	if !strings.HasPrefix(ev.Key, agent.VerdictKey("")) || r.Process.Ended() {
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
	if data, ok := ev.Data.(json.RawMessage); !ok || json.Unmarshal(data, &t.Verdict) != nil {
		t.Verdict = verdict.Verdict{} // a receiver could not read it either; the reason is none
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
			have = append(have, agent.VerdictKey(o.ID))
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

// Kill ends a member's process for good.
func (j *Job) Kill(member int, exit process.Exit) {
	j.Model.do(func() { j.Model.job.Processes[member].Kill(exit) })
	j.Ranks[member].Process.Kill(exit)
	j.end[member]()
}

// Stop stops a member's process, as SIGSTOP does.
func (j *Job) Stop(member int) {
	j.Model.do(j.Model.job.Processes[member].Stop)
	j.Ranks[member].Process.Stop()
}

// Continue lets it run again: its ranks see what ended meanwhile.
func (j *Job) Continue(member int) {
	j.Ranks[member].Process.Continue()
	j.Model.do(j.Model.job.Processes[member].Continue)
}

// Cut parts a machine from all others, for RAS and for the job's data; apart false joins it again.
func (j *Job) Cut(machine int, apart bool) {
	for i := range j.Machines {
		if i != machine {
			j.Network.Cut(j.Machines[machine], j.Machines[i], apart)
		}
	}
	j.Model.do(func() { j.Model.job.Cut(fmt.Sprintf("host%d", machine), apart) })
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

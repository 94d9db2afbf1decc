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
	Members  int           // processes
	Ranks    int           // in each process
	Machines int           // the members are spread over them evenly, and must be a multiple of them
	Step     time.Duration // mean duration of a step; default 1s
	Jitter   float64       // of the computing time, as a share of it: 0 to 1; default 0.1
	Link     sim.Link      // between machines
	Tuning   mesh.Tuning   // of the meshes; the zero value is mesh.OneMachine
}

// Job is a running job. Its methods must be called within one bubble of synctest.
type Job struct {
	*sim.Job
	Model   *Model
	Members []*Member

	config  Config
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	told  []Told
	known map[string]time.Time // by key: when the last member learned that a verdict is open
}

// Member is one process of a job: its agent, and the reader of its tape.
type Member struct {
	Agent *agent.Agent
	end   context.CancelFunc // of its agent

	mu    sync.Mutex
	model *model.Process
	watch *stall.Watch
	slots []tape.Slot
}

// Told is an event of a verdict that an agent sent to receivers outside of the job.
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

// lookTime is how often a process looks for stalls: a quarter of the age at which something is slow, as a node does.
const lookTime = model.DefaultSlow / 4

// clock is CLOCK_MONOTONIC of all processes.
func clock() int64 { return time.Now().UnixNano() }

// Start starts a job, and returns when its members know each other. The job is never nil, and the caller closes it even
// after an error.
func Start(ctx context.Context, c Config) (*Job, error) {
	j := &Job{Job: &sim.Job{}, config: c, stop: func() {}, known: map[string]time.Time{}}
	if c.Machines < 1 || c.Members%c.Machines != 0 || c.Members < 1 || c.Ranks < 1 {
		return j, fmt.Errorf("jobsim: %d members of %d ranks on %d machines, want as many on each", c.Members, c.Ranks,
			c.Machines)
	}
	j.Model = newModel(c)
	j.Members = make([]*Member, c.Members)
	var err error
	j.Job, err = sim.StartJob(ctx, sim.JobConfig{
		Seed: c.Seed, Link: c.Link, Machines: c.Machines, Each: c.Members / c.Machines, Tuning: c.Tuning,
		Member: func(r *sim.Rank, c *mesh.Config) {
			gate, a, p := r.Process.Gate, j.newAgent(r), model.New(model.Limits{})
			j.Members[r.Process.Member().Rank] = &Member{Agent: a, model: p, watch: stall.New(p)}
			c.Handler = func(ctx context.Context, from string, q []byte) []byte {
				gate()
				return a.Handle(ctx, from, q)
			}
			c.LocalNote = func(m mesh.Member) []byte { gate(); return a.LocalNote(m) }
			c.OnEvent = func(e mesh.Event) { gate(); a.Member(e) }
		},
	})
	if err != nil {
		return j, err
	}
	ctx, j.stop = context.WithCancel(ctx)
	for i, r := range j.Ranks {
		time.Sleep(lookTime / time.Duration(len(j.Ranks))) // processes look at different moments
		one, end := context.WithCancel(ctx)
		m := j.Members[i]
		m.end = end
		j.running.Go(func() { m.Agent.Run(one, r.Mesh) })
		j.running.Go(func() { j.watch(one, i, r.Process) })
	}
	j.Model.Restart() // as time passed while they joined
	return j, nil
}

func (j *Job) newAgent(r *sim.Rank) *agent.Agent {
	self := r.Process.Member()
	i := self.Rank
	note := func() verdict.Note { r.Process.Gate(); return j.note(i, self) }
	return agent.New(self, note, agent.Config{
		Local:  func(m mesh.Member) (verdict.Note, bool) { return j.note(m.Rank, m), true },
		HeldUp: func() bool { return j.Members[i].heldUp() },
		Event:  func(ev bus.Event, outward bool) { r.Process.Gate(); j.hear(r, i, &ev, outward) },
	})
}

// read brings the model of a process up to now, and calls failed, unless nil, for communicators that failed.
func (j *Job) read(i int, failed func(*model.Step)) *model.Process {
	o := j.Members[i]
	var events []tape.Event
	j.Model.do(func() {
		events, j.Model.events[i] = j.Model.events[i], nil
		o.slots = j.Model.job.Processes[i].Slots(o.slots[:0])
	})
	for k := range events {
		if s := o.model.Apply(&events[k]); s.Failed && failed != nil {
			failed(&s)
		}
	}
	o.model.Look(o.slots, nil)
	o.model.Forget(nil)
	return o.model
}

// note is the note of a process, by itself or from its tape.
func (j *Job) note(i int, m mesh.Member) verdict.Note {
	o := j.Members[i]
	o.mu.Lock()
	defer o.mu.Unlock()
	return agent.NoteBy(m, j.read(i, nil), clock())
}

func (o *Member) heldUp() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return verdict.AnyHeldUp(o.model, clock())
}

// watch checks for stalls every lookTime.
func (j *Job) watch(ctx context.Context, i int, p *sim.Process) {
	timer := time.NewTimer(lookTime / time.Duration(2*len(j.Ranks))) // between the ticks of the agents
	defer timer.Stop()
	last := clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		p.Gate()
		o := j.Members[i]
		o.mu.Lock()
		now := clock()
		if now-last > int64(4*lookTime) { // it was stopped
			o.model.Resumed(last, now)
		}
		last = now
		j.read(i, func(s *model.Step) { o.Agent.Failed(p.Member(), s) })
		news := slices.ContainsFunc(o.watch.Check(now), stall.Report.News)
		o.mu.Unlock()
		if news {
			o.Agent.Trouble()
		}
		timer.Reset(lookTime)
	}
}

// hear records an agent's events of verdicts.
func (j *Job) hear(r *sim.Rank, i int, ev *bus.Event, outward bool) {
	if !strings.HasPrefix(ev.Key, agent.VerdictKey("")) || r.Process.Ended() {
		return
	}
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if ev.Stage == bus.Opened {
		j.known[ev.Key] = now
	}
	if !outward {
		return
	}
	t := Told{At: now, By: i, Stage: ev.Stage, Key: ev.Key}
	if data, ok := ev.Data.(json.RawMessage); !ok || json.Unmarshal(data, &t.Verdict) != nil {
		t.Verdict = verdict.Verdict{} // unreadable for a receiver, too: ReasonNone
	}
	j.told = append(j.told, t)
}

// Told are the events that receivers outside of the job got so far, in order.
func (j *Job) Told() []Told {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.told)
}

// Known is when the last member learned of a verdict.
func (j *Job) Known(key string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.known[key]
}

// AllHold tells whether the open verdicts of each running member are exactly those with these keys. except, unless nil,
// excludes members.
func (j *Job) AllHold(except func(member int) bool, keys ...string) bool {
	want := slices.Sorted(slices.Values(keys))
	for i, m := range j.Members {
		if j.Ranks[i].Process.Ended() || except != nil && except(i) {
			continue
		}
		var have []string
		for _, o := range m.Agent.Open() {
			have = append(have, agent.VerdictKey(o.ID))
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			return false
		}
	}
	return true
}

// Machine is the number of a member's machine.
func (j *Job) Machine(member int) int { return member / (len(j.Ranks) / j.config.Machines) }

// Kill kills a member's process.
func (j *Job) Kill(member int, exit process.Exit) {
	j.Model.do(func() { j.Model.job.Processes[member].Kill(exit) })
	j.Ranks[member].Process.Kill(exit)
	j.Members[member].end()
}

// Stop stops a member's process, as SIGSTOP does.
func (j *Job) Stop(member int) {
	j.Model.do(j.Model.job.Processes[member].Stop)
	j.Ranks[member].Process.Stop()
}

// Continue continues a member's process, as SIGCONT does.
func (j *Job) Continue(member int) {
	j.Ranks[member].Process.Continue()
	j.Model.do(j.Model.job.Processes[member].Continue)
}

// Cut disconnects a machine from all others, for RAS and for the job's data; with apart false, it connects it again.
func (j *Job) Cut(machine int, apart bool) {
	for i := range j.Machines {
		if i != machine {
			j.Network.Cut(j.Machines[machine], j.Machines[i], apart)
		}
	}
	j.Model.do(func() { j.Model.job.Cut(fmt.Sprintf("host%d", machine), apart) })
}

// Close ends the job, and waits in virtual time for its end.
func (j *Job) Close() error {
	for _, r := range j.Ranks {
		r.Process.Continue()
	}
	j.stop()
	j.running.Wait()
	return j.Job.Close()
}

package corpus

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// How long news of a process takes in the simulated membership.
const (
	lookTime = 250 * time.Millisecond // how often a process looks for stalls
	hop      = 500 * time.Microsecond // a message between processes
	deathLag = 60 * time.Millisecond
	stopLag  = 600 * time.Millisecond
	lostLag  = 6 * time.Second
	joinLag  = 20 * time.Millisecond
)

// Live is the agents of a simulated job, in virtual time.
type Live struct {
	job   *jobsim.Job
	peers []*peer
	// Told hears what receivers outside of the job are told.
	Told func(at int64, t *agent.Tell)
	// Tapes record the job, if they aren't nil.
	Tapes *Tapes
}

// firstPID is the process id of the job's first process.
const firstPID = 1000

// peer is one process with its agent.
type peer struct {
	live    *Live
	process *jobsim.Process
	member  mesh.Member
	model   *model.Process
	machine *agent.Machine
	seen    map[string]mesh.Status // what it knows of the others
	wake    int                    // the last Wake
	rounds  map[uint64]bool        // looks that wait for notes
	slots   []tape.Slot
	gone    bool
}

// base is the time of day at the clock's zero.
var base = time.Unix(1_700_000_000, 0).UTC()

func (l *Live) now() time.Time { return base.Add(time.Duration(l.job.Now())) }

// NewLive gives each process of a job a model and an agent. It must be called before the job runs.
func NewLive(j *jobsim.Job, limits model.Limits) *Live {
	l := &Live{job: j, Told: func(int64, *agent.Tell) {}}
	for i, p := range j.Processes {
		m := mesh.Member{
			Name: fmt.Sprintf("%s-%d", p.Host, firstPID+i), Host: p.Host, ID: process.ID{PID: firstPID + i},
			Rank: p.Ranks[0].Job, JobSize: len(j.Ranks), Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(1000+i)),
		}
		q := &peer{
			live: l, process: p, member: m, model: model.New(limits), machine: agent.NewMachine(m, agent.Timing{}),
			seen: map[string]mesh.Status{}, rounds: map[uint64]bool{},
		}
		p.Observe = func(ev *tape.Event) {
			if l.Tapes != nil {
				l.Tapes.observe(p, ev)
			}
			if s := q.model.Apply(ev); s.Failed {
				q.step(agent.Trouble{})
			}
		}
		l.peers = append(l.peers, q)
	}
	for _, q := range l.peers {
		for _, o := range l.peers {
			q.seen[o.member.Name] = mesh.Status{Member: o.member, Since: l.now()}
		}
		q.process.Changed = func() { l.changed(q) }
		j.After(joinLag, func() { q.step(agent.Membership{Members: q.members()}) })
		q.look()
	}
	return l
}

func (q *peer) members() []mesh.Status {
	all := make([]mesh.Status, 0, len(q.live.peers))
	for _, o := range q.live.peers {
		all = append(all, q.seen[o.member.Name])
	}
	return all
}

// changed lets the others learn what became of a process.
func (l *Live) changed(q *peer) {
	if s := q.process.State; l.Tapes != nil && (s == jobsim.Dead || s == jobsim.Departed) {
		l.Tapes.over(q.process)
	}
	lag := deathLag
	switch q.process.State {
	case jobsim.Departed:
		q.step(agent.Leave{Note: l.note(q), Alone: !l.others(q)})
		q.gone = true
	case jobsim.Stopped:
		lag = stopLag
	case jobsim.Running:
		lag = joinLag
		q.model.Resumed(l.job.Now())
		l.job.After(stopLag, func() { // what it could not see
			for _, o := range l.peers {
				q.learn(o)
			}
		})
	case jobsim.Dead:
		q.gone = true
	}
	since := q.process.Since
	l.job.After(lag, func() {
		if q.process.Since != since {
			return // it has changed again
		}
		for _, o := range l.peers {
			o.learn(q)
		}
	})
}

// status is what became of the process.
func (q *peer) status() mesh.Status {
	s := mesh.Status{Member: q.member, Cause: mesh.CauseAnswers, Since: base.Add(time.Duration(q.process.Since))}
	switch q.process.State {
	case jobsim.Running:
	case jobsim.Stopped:
		s.State, s.Cause = mesh.Stopped, mesh.CauseSignal
	case jobsim.Dead:
		s.State, s.Cause, s.Exit = mesh.Dead, mesh.CauseExit, exitOf(q.process.How)
	case jobsim.Departed:
		s.State, s.Cause = mesh.Left, mesh.CauseTold
	}
	return s
}

func (l *Live) others(q *peer) bool {
	return slices.ContainsFunc(l.peers, func(o *peer) bool { return o != q && !o.gone })
}

// learn takes what became of another process, if this one runs and can see it.
func (q *peer) learn(of *peer) {
	if of != q && q.process.State == jobsim.Running && q.live.job.Reach(q.process, of.process) {
		q.take(of, of.status())
	}
}

func (q *peer) take(of *peer, s mesh.Status) {
	old := q.seen[of.member.Name]
	if old.State == s.State || old.State == mesh.Dead || old.State == mesh.Left {
		return
	}
	q.seen[of.member.Name] = s
	q.run(func() { q.step(agent.Membership{Members: q.members()}) })
}

// Cut tells the members that the network is parted, or joined again.
func (l *Live) Cut() {
	for _, q := range l.peers {
		for _, o := range l.peers {
			if q == o || q.process.Host == o.process.Host {
				continue
			}
			parted, since := !l.job.Reach(q.process, o.process), l.now()
			lag, state := joinLag, mesh.Alive
			if parted {
				lag, state = lostLag, mesh.Unreachable
			}
			l.job.After(lag, func() {
				if parted == !l.job.Reach(q.process, o.process) && o.process.State != jobsim.Departed {
					q.take(o, mesh.Status{Member: o.member, State: state, Since: since, Cause: mesh.CauseSilence})
				}
			})
		}
	}
}

// run does something in the process's agent, if it runs.
func (q *peer) run(f func()) {
	if !q.gone {
		q.process.Do(f)
	}
}

// look looks for what stalls, again and again.
func (q *peer) look() {
	q.live.job.After(lookTime, func() {
		if q.gone {
			return
		}
		q.run(func() {
			if q.live.Tapes != nil {
				q.live.Tapes.saw(q.process)
			}
			if q.stalls() {
				q.step(agent.Trouble{})
			}
		})
		q.look()
	})
}

// Ending tells all processes that they are to end, as a launcher does that was told to.
func (l *Live) Ending() {
	if l.Tapes != nil {
		l.Tapes.told()
	}
	for _, q := range l.peers {
		q.run(func() { q.step(agent.Ending{}) })
	}
}

// stalls tells whether something began to take too long, or does no longer.
func (q *peer) stalls() (news bool) {
	now := q.live.job.Now()
	q.slots = q.process.Slots(q.slots[:0])
	q.model.Look(q.slots, nil)
	const often = int64(10 * time.Second)
	return q.model.Mark(now) || now/often != (now-int64(lookTime))/often && verdict.AnyHeldUp(q.model, now)
}

// step gives the agent an input, and does what it says.
func (q *peer) step(in agent.Input) {
	l := q.live
	for _, e := range q.machine.Step(l.now(), in) {
		switch e := e.(type) {
		case agent.AskNotes:
			q.ask(&e)
		case agent.TellTrouble:
			q.tell(e.To)
		case agent.Broadcast:
			for _, o := range l.peers {
				if o == q || !l.job.Reach(q.process, o.process) {
					continue
				}
				heard := agent.Heard{From: q.member.Name, Turn: e.Turn, Open: e.Open, Unresolved: e.Unresolved}
				l.job.After(hop, func() { o.run(func() { o.step(heard) }) })
			}
		case agent.Tell:
			if e.Outward {
				l.Told(l.job.Now(), &e)
			}
		case agent.Wake:
			q.wake++
			wake := q.wake
			l.job.After(e.At.Sub(l.now()), func() {
				if wake == q.wake {
					q.run(func() { q.step(agent.Tick{}) })
				}
			})
		case agent.StopTelling, agent.Publish, agent.Settled:
		}
	}
}

// ask gathers the notes of all that answer, and those that neighbours have of the others.
func (q *peer) ask(e *agent.AskNotes) {
	l := q.live
	round := e.Round
	var notes []verdict.Note
	wait := 4 * hop
	for _, name := range e.Of {
		i := slices.IndexFunc(l.peers, func(o *peer) bool { return o.member.Name == name })
		o := l.peers[i]
		switch {
		case !l.job.Reach(q.process, o.process):
			wait = 2 * time.Second
		case o.gone || o.process.State != jobsim.Running:
			if !slices.ContainsFunc(l.peers, func(p *peer) bool {
				return p != o && p.process.Host == o.process.Host && !p.gone && p.process.State == jobsim.Running
			}) {
				continue
			}
			if !o.gone && q.seen[name].State == mesh.Alive { // it is asked itself, in vain
				wait = 2 * time.Second
				continue
			}
		}
		l.job.After(2*hop, func() {
			notes = append(notes, l.note(o))
			o.run(func() { o.step(agent.AskedForNote{By: q.member.Name}) })
		})
	}
	l.job.After(wait, func() { q.run(func() { q.step(agent.Notes{Round: round, Notes: notes}) }) })
}

func (q *peer) tell(to string) {
	l := q.live
	i := slices.IndexFunc(l.peers, func(o *peer) bool { return o.member.Name == to })
	o := l.peers[i]
	heard := l.job.Reach(q.process, o.process) && !o.gone && o.process.State == jobsim.Running
	wait := 2 * hop
	if heard {
		l.job.After(hop, func() { o.run(func() { o.step(agent.AskedToLook{}) }) })
	} else {
		wait = 2 * time.Second
	}
	l.job.After(wait, func() { q.run(func() { q.step(agent.Told{Heard: heard}) }) })
}

// note is what a process says of itself, or its tape does.
func (l *Live) note(q *peer) verdict.Note {
	n := verdict.Note{
		Member: q.member.Name, Host: q.member.Host, PID: q.member.PID,
		Rank: q.member.Rank, JobSize: q.member.JobSize,
	}
	q.slots = q.process.Slots(q.slots[:0])
	q.model.Look(q.slots, nil)
	n.Fold(q.model, l.job.Now())
	return n
}

// Notes are what all processes say of themselves now, with what became of each.
func (l *Live) Notes() []verdict.Note {
	notes := make([]verdict.Note, 0, len(l.peers))
	for _, q := range l.peers {
		n := l.note(q)
		s := q.status()
		switch q.process.State {
		case jobsim.Running:
		case jobsim.Stopped:
			n.Fate = verdict.Stopped
		case jobsim.Dead:
			n.Fate = verdict.Dead
		case jobsim.Departed:
			n.Fate = verdict.Departed
		}
		if n.Fate != verdict.Alive {
			n.FateAge, n.Cause = time.Duration(l.job.Now()-q.process.Since), agent.CauseText(&s)
		}
		notes = append(notes, n)
	}
	return notes
}

// Open are the verdicts that are open, as the process that coordinates has them.
func (l *Live) Open() []verdict.Verdict {
	for _, q := range l.peers {
		if !q.gone && q.process.State == jobsim.Running && q.machine.Leader() == q.member.Name {
			return q.machine.Open()
		}
	}
	return nil
}

package corpus

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// Times of the simulated membership.
const (
	lookTime = 250 * time.Millisecond // between two checks for stalls
	hop      = 500 * time.Microsecond // of a message between processes
	deathLag = 60 * time.Millisecond
	exitLag  = 200 * time.Millisecond // from the end of a runtime until a launcher tells of a failing exit code
	stopLag  = 600 * time.Millisecond
	lostLag  = 6 * time.Second
	joinLag  = 20 * time.Millisecond
	silence  = 2 * time.Second // until a question without an answer times out
)

// Live holds the agents of a simulated job, in virtual time, and the tapes of its processes.
type Live struct {
	job   *jobsim.Job
	peers []*peer
	ended []process.Entry // the launcher's ledger
	// Told is called with each message to receivers outside of the job.
	Told func(at int64, t *agent.Tell)
}

// firstPID is the process id of the job's first process.
const firstPID = 1000

// peer is one process with its agent and its tape.
type peer struct {
	live    *Live
	process *jobsim.Process
	member  mesh.Member
	model   *model.Process
	watch   *stall.Watch
	machine *agent.Machine
	seen    []mesh.Status // its view of the membership, by process
	wake    int           // number of the last Wake
	stopped int64         // when it was stopped last
	slots   []tape.Slot
	tape    *tapetest.Forge
	last    []tape.Slot // the in-flight table, if the process has ended
}

// base is the time of day at the clock's zero.
var base = time.Unix(1_700_000_000, 0).UTC()

func (l *Live) now() time.Time { return base.Add(time.Duration(l.job.Now())) }

// NewLive gives each process of a job a model, an agent and a tape. It must be called before the job runs.
func NewLive(j *jobsim.Job) *Live {
	l := &Live{job: j, Told: func(int64, *agent.Tell) {}}
	for i, p := range j.Processes {
		m := mesh.Member{
			Name: fmt.Sprintf("%s-%d", p.Host, firstPID+i), Host: p.Host, ID: process.ID{PID: firstPID + i},
			Rank: i, JobSize: len(j.Processes),
			Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(1000+i)),
		}
		q := &peer{
			live: l, process: p, member: m, model: model.New(model.Limits{Floor: Threshold}),
			machine: agent.NewMachine(m),
		}
		q.tape, q.watch = q.newTape(), stall.New(q.model)
		p.Observe = func(ev *tape.Event) {
			q.record(ev)
			if s := q.model.Apply(ev); s.Failed {
				q.step(agent.Trouble{})
			}
		}
		p.Changed = func() { l.changed(q) }
		l.peers = append(l.peers, q)
	}
	for _, q := range l.peers {
		for _, o := range l.peers {
			q.seen = append(q.seen, mesh.Status{Member: o.member, Since: l.now()})
		}
		j.After(joinLag, q.learned)
		q.look()
	}
	return l
}

// learned gives the agent the membership.
func (q *peer) learned() { q.step(agent.Membership{Members: slices.Clone(q.seen)}) }

func (l *Live) find(name string) *peer {
	return l.peers[slices.IndexFunc(l.peers, func(o *peer) bool { return o.member.Name == name })]
}

// changed spreads the new state of a process.
func (l *Live) changed(q *peer) {
	lag := deathLag
	switch q.process.State {
	case jobsim.Departed:
		q.over()
		alone := !slices.ContainsFunc(l.peers, func(o *peer) bool { return !o.process.State.Ended() })
		q.step(agent.Leave{Note: q.note(), Alone: alone})
	case jobsim.Stopped:
		lag, q.stopped = stopLag, l.job.Now()
	case jobsim.Running:
		lag = joinLag
		q.model.Resumed(q.stopped, l.job.Now())
		l.job.After(stopLag, func() { // changes while it was stopped
			for _, o := range l.peers {
				q.learn(o)
			}
		})
	case jobsim.Dead:
		q.over()
	}
	since := q.process.Since
	tell := func() {
		if q.process.Since != since {
			return // it has changed again
		}
		for _, o := range l.peers {
			o.learn(q)
		}
	}
	l.job.After(lag, tell)
	if q.process.State == jobsim.Departed && q.process.How.Failed() {
		l.job.After(exitLag, tell)
	}
}

// status is the state of the process, as the membership tells it.
func (q *peer) status() mesh.Status {
	s := [...]mesh.Status{
		jobsim.Running:  {Cause: mesh.CauseAnswers},
		jobsim.Stopped:  {State: mesh.Stopped, Cause: mesh.CauseSignal},
		jobsim.Dead:     {State: mesh.Dead, Cause: mesh.CauseExit, Exit: q.process.How},
		jobsim.Departed: {State: mesh.Left, Cause: mesh.CauseTold},
	}[q.process.State]
	over := q.live.job.Now()-q.process.Since >= int64(exitLag)
	if s.State == mesh.Left && q.process.How.Failed() && over {
		s.Cause, s.Exit = mesh.CauseExit, q.process.How
	}
	s.Member, s.Since = q.member, base.Add(time.Duration(q.process.Since))
	return s
}

// learn updates the view of another process, if this one runs and can reach it.
func (q *peer) learn(of *peer) {
	if of != q && q.runs() && q.live.job.Reach(q.process, of.process) {
		q.take(of, of.status())
	}
}

func (q *peer) take(of *peer, s mesh.Status) {
	old := &q.seen[of.process.Index]
	if old.State == s.State && old.Exit == s.Exit || old.State == mesh.Dead ||
		old.State == mesh.Left && s.State != mesh.Left {
		return
	}
	*old = s
	q.process.Do(q.learned)
}

// Cut disconnects a host from all others, or connects it again; the members learn of it later.
func (l *Live) Cut(host string, apart bool) {
	l.job.Cut(host, apart)
	for _, q := range l.peers {
		for _, o := range l.peers {
			if q == o || q.process.Host == o.process.Host {
				continue
			}
			cut, since := !l.job.Reach(q.process, o.process), l.now()
			lag, state := joinLag, mesh.Alive
			if cut {
				lag, state = lostLag, mesh.Unreachable
			}
			l.job.After(lag, func() {
				if cut == !l.job.Reach(q.process, o.process) && o.process.State != jobsim.Departed {
					q.take(o, mesh.Status{Member: o.member, State: state, Since: since, Cause: mesh.CauseSilence})
				}
			})
		}
	}
}

// look checks for stalls every lookTime.
func (q *peer) look() {
	q.live.job.After(lookTime, func() {
		if q.process.State.Ended() {
			return
		}
		q.process.Do(func() {
			q.beat()
			if q.stalls() {
				q.step(agent.Trouble{})
			}
		})
		q.look()
	})
}

// Ending sends SIGTERM to all processes, as a launcher that received it does.
func (l *Live) Ending() {
	hosts := map[string]bool{}
	for _, q := range l.peers {
		q.tape.Terminated = l.job.Now()
		if !hosts[q.process.Host] {
			hosts[q.process.Host] = true
			l.ended = append(l.ended, process.Entry{Time: l.now(), Mono: l.job.Now(), Boot: q.boot(), Ended: "SIGTERM"})
		}
	}
	for _, q := range l.peers {
		q.process.Do(func() { q.step(agent.Ending{}) })
	}
}

// Terminate ends a process by SIGTERM, which the process notes on its tape.
func (l *Live) Terminate(p *jobsim.Process) {
	if !p.State.Ended() {
		l.peers[p.Index].tape.Terminated = l.job.Now()
		p.Kill(process.Exit{Known: true, Signal: unix.SIGTERM})
	}
}

// stalls tells whether a stall began or ended.
func (q *peer) stalls() (news bool) {
	now := q.live.job.Now()
	q.slots = q.process.Slots(q.slots[:0])
	q.model.Look(q.slots, nil)
	const often = int64(2 * time.Second)
	_, news = q.watch.Doubtful(now)
	news = slices.ContainsFunc(q.watch.Check(now), stall.Report.News) || news
	return news || now/often != (now-int64(lookTime))/often && verdict.AnyHeldUp(q.model, now)
}

// step gives the agent an input, and carries out its effects.
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
				heard := agent.Heard{From: q.member.Name, Broadcast: e}
				l.job.After(hop, func() { o.process.Do(func() { o.step(heard) }) })
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
					q.process.Do(func() { q.step(agent.Tick{}) })
				}
			})
		case agent.StopTelling, agent.Publish, agent.Settled:
		}
	}
}

// ask gathers the notes of the members that answer, and for the other members the notes that their neighbours read.
func (q *peer) ask(e *agent.AskNotes) {
	l := q.live
	var notes []verdict.Note
	wait := 4 * hop
	for _, name := range e.Of {
		o := l.find(name)
		switch {
		case !l.job.Reach(q.process, o.process):
			wait = silence
		case !o.runs():
			if !slices.ContainsFunc(l.peers, func(p *peer) bool {
				return p.process.Host == o.process.Host && p.runs()
			}) {
				continue
			}
			if !o.process.State.Ended() && q.seen[o.process.Index].State == mesh.Alive { // the question to it times out
				wait = silence
				continue
			}
		}
		l.job.After(2*hop, func() {
			notes = append(notes, o.note())
			o.process.Do(func() { o.step(agent.AskedForNote{By: q.member.Name}) })
		})
	}
	l.job.After(wait, func() { q.process.Do(func() { q.step(agent.Notes{Round: e.Round, Notes: notes}) }) })
}

func (q *peer) tell(to string) {
	l, o := q.live, q.live.find(to)
	heard := l.job.Reach(q.process, o.process) && o.runs()
	wait := silence
	if heard {
		wait = 2 * hop
		l.job.After(hop, func() { o.process.Do(func() { o.step(agent.AskedToLook{}) }) })
	}
	l.job.After(wait, func() { q.process.Do(func() { q.step(agent.Told{Heard: heard}) }) })
}

func (q *peer) runs() bool { return q.process.State == jobsim.Running }

// note is the note of the process, from its own model or its tape.
func (q *peer) note() verdict.Note {
	q.slots = q.process.Slots(q.slots[:0])
	q.model.Look(q.slots, nil)
	return agent.NoteBy(q.member, q.model, q.live.job.Now())
}

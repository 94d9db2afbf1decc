package agent

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
)

// Config connects an Agent to the rest of its process. All of it is optional.
type Config struct {
	// Stuck lists communicators in which an operation or act of this process stalls.
	Stuck func() []lifecycle.CommID
	// HeldUp reports whether operations of this process keep waiting for one rank, or may. It is called every lookTime.
	// While it is true and no verdict is open, the job is looked at after 1, 2, 4, … calls, and after every rareLooks.
	HeldUp func() bool
	// Local is the note of another process of this host that can't answer, as FromTapes reads it from the tape.
	Local func(mesh.Member) (verdict.Note, bool)
	// Launched is what the launcher has recorded. It is called when the job is judged, and may read a file.
	Launched func() Launched
	// Kept returns the processes of this host for which this one answers with the notes of Local; nil if it answers for
	// itself. All their Members, and its own, have its name as the Keeper. With a mesh, the Agent sends their list to
	// other such agents. Kept may wait for calls of the Agent's Member, as a Keeper's Members does: the Agent calls it
	// unlocked.
	Kept func() []mesh.Status
	// Others are notes, from another source, of processes of the job that are not members.
	Others func(members []verdict.Note) []verdict.Note

	// Event takes events. It must not block. outward says that this process also sends the event to receivers outside
	// of the job.
	Event func(ev bus.Event, outward bool)
	// Open takes the open verdicts whenever one opened, changed, reads differently or was withdrawn. It must neither
	// block nor modify them.
	Open func([]verdict.Verdict)
}

// Agent is RAS in one process: a Machine, and what connects it to the mesh, the tape and the bus. Its methods may be
// called from any goroutine.
type Agent struct {
	self mesh.Member
	note func() verdict.Note
	cfg  Config
	wake chan struct{} // of capacity one: the queue has inputs

	mu      sync.Mutex
	queue   []Input
	topic   []lifecycle.CommID // the communicators of the last question
	open    []Open
	at      time.Time // when the ages in open were current
	reached map[verdict.Reason]uint64
	rounds  uint64
	failed  time.Time        // when a communicator last failed here; zero: none did
	settled time.Time        // when the last completed look began
	changed chan struct{}    // closed and replaced when settled changes
	members []mesh.Status    // all known ones, as the machine got them last
	ended   []mesh.Status    // of these, the ones that only the launcher knew
	noted   []mesh.Status    // all processes that, by the launcher, have ended
	lists   map[string]*list // by agent: the processes for which it answers
	own     list             // of Config.Kept, as sent to the other agents

	mesh atomic.Pointer[mesh.Mesh] // nil: the process is alone

	// Used by Run only.
	machine *Machine
	timer   *time.Timer
	stop    context.CancelFunc    // cancels TellTrouble
	states  map[string]mesh.State // of processes on the lists of other agents, as published
	sharing bool
	heard   map[string]uint64 // by agent: the turn of own that it has received
	busy    sync.WaitGroup
}

// maxQueue bounds the inputs that wait for Run.
const maxQueue = 1 << 12

// New makes the Agent of the process self. note makes the process's note; it must not wait for the data path.
func New(self mesh.Member, note func() verdict.Note, cfg Config) *Agent {
	if cfg.Event == nil {
		cfg.Event = func(bus.Event, bool) {}
	}
	if cfg.Stuck == nil {
		cfg.Stuck = func() []lifecycle.CommID { return nil }
	}
	if cfg.Local == nil {
		cfg.Local = func(mesh.Member) (n verdict.Note, known bool) { return n, false }
	}
	return &Agent{
		self: self, note: note, cfg: cfg, wake: make(chan struct{}, 1), reached: map[verdict.Reason]uint64{},
		lists: map[string]*list{}, states: map[string]mesh.State{}, heard: map[string]uint64{},
		changed: make(chan struct{}), machine: NewMachine(self), stop: func() {},
	}
}

// locked calls f with the agent locked.
func (a *Agent) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// put queues an input for Run. Repeated inputs are merged. When the queue is full, only inputs that the machine itself
// waits for are taken.
func (a *Agent) put(in Input) {
	a.locked(func() {
		drop := len(a.queue) >= maxQueue
		switch in.(type) {
		case Trouble, memberChanged:
			drop = drop || slices.ContainsFunc(a.queue, func(waiting Input) bool {
				return reflect.TypeOf(waiting) == reflect.TypeOf(in)
			})
		case Notes, Told, Ending, shared:
			drop = false
		}
		if !drop {
			a.queue = append(a.queue, in)
		}
	})
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Trouble tells that something stalls in this process, or no longer does, and asks for a look at the job.
func (a *Agent) Trouble() { a.put(Trouble{}) }

// Failed takes the tape's step with which a communicator failed in this process, or one of Config.Kept.
func (a *Agent) Failed(of mesh.Member, s *model.Step) {
	a.locked(func() { a.failed = time.Now() })
	a.commFailed(of, s.Event)
	a.put(Trouble{})
}

// Ending tells that the process, or its job, was told to end: for the next minute it opens no verdict.
func (a *Agent) Ending() { a.put(Ending{}) }

// Open is an open verdict, and when this process learnt of it.
type Open struct {
	verdict.Verdict
	Since time.Time
}

// Open lists the open verdicts that this process knows of, as they read now. They are not to be modified.
func (a *Agent) Open() []Open {
	a.mu.Lock()
	defer a.mu.Unlock()
	open, since := slices.Clone(a.open), time.Since(a.at)
	for i := range open {
		open[i].Verdict = open[i].After(since)
	}
	return open
}

// Stats counts since the Agent was made.
type Stats struct {
	Rounds  uint64                    // how often it asked all for their notes
	Reached map[verdict.Reason]uint64 // the verdicts that it opened as the coordinator
}

// Stats is a copy of the counts.
func (a *Agent) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Stats{Rounds: a.rounds, Reached: maps.Clone(a.reached)}
}

// Handle is mesh.Config.Handler.
func (a *Agent) Handle(_ context.Context, from string, question []byte) []byte {
	m, err := decode(question)
	if err != nil {
		return nil
	}
	switch m.Kind {
	case askNotes:
		about := among(m.About)
		a.locked(func() { a.topic = about })
		a.put(AskedForNote{from})
		if a.cfg.Kept != nil {
			return encodeNotes(a.kept(), about)
		}
		n := a.note()
		return encodeNote(&n, about, mesh.MaxAnswer)
	case askLook:
		a.put(AskedToLook{m.About})
	case tellOpen:
		a.put(Heard{m.From, Broadcast{m.Turn, m.verdicts(), m.Unresolved}})
	case tellKept:
		a.storeList(from, m.Kept)
		a.put(memberChanged{})
	default: // of a later version
		return nil
	}
	return []byte("ok")
}

// LocalNote is mesh.Config.LocalNote.
func (a *Agent) LocalNote(of mesh.Member) []byte {
	n, ok := a.cfg.Local(of)
	if !ok {
		return nil
	}
	var about []lifecycle.CommID
	a.locked(func() { about = a.topic })
	return encodeNote(&n, about, mesh.MaxAnswer)
}

// Member is mesh.Config.OnEvent, and takes the events of Config.Kept. Events of other carillon agents are not
// published.
func (a *Agent) Member(e mesh.Event) {
	if !e.Member.Keeps() {
		a.memberEvent(e)
	}
	a.put(memberChanged{})
}

// memberChanged makes Run read the membership again.
type memberChanged struct{}

// leaveTime is how long a coordinator that leaves waits for the others to leave.
const leaveTime = time.Second

// Meet sets the mesh by which the agent reaches the others from now on. Its Config has Handle, LocalNote and Member.
func (a *Agent) Meet(m *mesh.Mesh) {
	a.mesh.Store(m)
	a.put(memberChanged{})
}

// Run works with the other agents until ctx ends. m is the process's mesh, as for Meet, or nil if the process is the
// whole job, as far as is known. It blocks, and is called once.
func (a *Agent) Run(ctx context.Context, m *mesh.Mesh) {
	if m != nil {
		a.mesh.Store(m)
	}
	a.timer = time.NewTimer(time.Hour)
	defer a.timer.Stop()
	defer a.busy.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := time.NewTicker(lookTime)
	defer look.Stop()
	share := time.NewTicker(shareTime)
	defer share.Stop()
	a.step(ctx, memberChanged{})
	for heldUp := 0; ; { // ticks in a row at which operations were held up
		select {
		case <-ctx.Done():
			a.end()
			return
		case <-share.C:
			a.share(ctx)
		case <-look.C:
			if a.cfg.HeldUp == nil || len(a.machine.Open()) > 0 || !a.cfg.HeldUp() {
				heldUp = 0
			} else if heldUp++; heldUp&(heldUp-1) == 0 || heldUp%rareLooks == 0 {
				a.step(ctx, Trouble{})
			}
		case <-a.wake:
			var queue []Input
			a.locked(func() { queue, a.queue = a.queue, nil })
			for _, in := range queue {
				a.step(ctx, in)
			}
		case <-a.timer.C:
			a.step(ctx, Tick{})
		}
	}
}

// membership collects the members of the mesh, or this process if there is no mesh, and the processes for which agents
// answer.
func (a *Agent) membership() Membership {
	all := []mesh.Status{{Member: a.self}}
	if m := a.mesh.Load(); m != nil {
		all = m.Members()
	}
	known := map[string]bool{}
	var kept []mesh.Status
	if a.cfg.Kept != nil {
		kept = append(kept, a.cfg.Kept()...)
	}
	for _, s := range append(kept, a.keptElsewhere(all)...) {
		if !known[s.Member.Name] {
			known[s.Member.Name] = true
			all = append(all, s)
		}
	}
	a.changes(all)
	unknown := a.addEnds(all)
	all = append(all, unknown...)
	a.locked(func() { a.ended, a.members = unknown, all })
	return Membership{slices.Clone(all)}
}

// step gives the machine an input, and carries out the effects.
func (a *Agent) step(ctx context.Context, in Input) {
	now := time.Now()
	switch of := in.(type) {
	case memberChanged:
		in = a.membership()
		a.share(ctx)
	case shared:
		a.sharing = false
		for _, name := range of.by {
			a.heard[name] = of.turn
		}
		if of.turn != a.turn() {
			a.share(ctx)
		}
		return
	case Notes: // judge them by the membership of this moment, and then by what the launcher did before
		a.effects(ctx, now, a.machine.Step(now, a.membership()))
		of.Notes = append(of.Notes, a.launched(ctx, now)...)
		in = of
	}
	a.effects(ctx, now, a.machine.Step(now, in))
}

func (a *Agent) effects(ctx context.Context, now time.Time, effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case AskNotes:
			a.background(func() Input {
				in := Notes{Round: e.Round, Notes: a.gather(ctx, e)}
				if a.cfg.Others != nil {
					in.Others = a.cfg.Others(in.Notes)
				}
				return in
			})
		case TellTrouble:
			ctx, cancel := context.WithTimeout(ctx, askTime)
			a.stop = cancel
			a.background(func() Input {
				defer cancel()
				return Told{a.tell(ctx, e.To)}
			})
		case StopTelling:
			a.stop()
		case Broadcast:
			a.broadcast(ctx, &e)
		case Tell:
			a.cfg.Event(verdictEvent(&e.Change, e.Since, now), e.Outward)
			if e.Outward && e.Change.Kind == verdict.Opened {
				a.locked(func() { a.reached[e.Change.Verdict.Reason]++ })
			}
		case Publish:
			list := make([]Open, 0, len(e.Open))
			for _, v := range e.Open {
				list = append(list, Open{v, a.machine.Since(v.ID)})
			}
			a.locked(func() { a.open, a.at = list, now })
			if a.cfg.Open != nil {
				a.cfg.Open(e.Open)
			}
		case Settled:
			a.locked(func() {
				a.settled = e.Began
				close(a.changed)
				a.changed = make(chan struct{})
			})
		case Wake:
			a.timer.Reset(time.Until(e.At))
		}
	}
}

// background runs f on a goroutine, and gives its result to the machine.
func (a *Agent) background(f func() Input) { a.busy.Go(func() { a.put(f()) }) }

// gather asks for notes.
func (a *Agent) gather(ctx context.Context, ask AskNotes) []verdict.Note {
	a.locked(func() { a.rounds++ })
	notes := a.tapesOf(ask.Of)
	if a.cfg.Kept != nil {
		notes = append(notes, a.kept(ask.Of...)...)
	}
	to, m := a.respondents(ask.Of), a.mesh.Load()
	switch {
	case len(to) == 0:
		return notes
	case m == nil:
		return append(notes, a.note())
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	question := message{Kind: askNotes, About: among(append(ask.About, a.cfg.Stuck()...))}
	answers, err := m.Ask(ctx, question.encode(), to...)
	if err != nil && a.cfg.Kept == nil {
		return append(notes, a.note())
	} else if err != nil {
		return notes
	}
	for ans := range answers {
		own := func(of string) bool { return a.answersFor(ans.From, of) }
		notes = append(notes, decodeNotes(ans.From, ans.Body, own)...)
	}
	return notes
}

// tell asks the coordinator to look, and reports whether it will.
func (a *Agent) tell(ctx context.Context, leader string) bool {
	m := a.mesh.Load()
	if m == nil {
		return true
	}
	answers, err := m.Ask(ctx, (&message{Kind: askLook, About: a.cfg.Stuck()}).encode(), leader)
	if err != nil {
		return false
	}
	for ans := range answers {
		if ans.By == leader {
			return true
		}
	}
	return errors.Is(ctx.Err(), context.Canceled) // by StopTelling
}

// broadcast sends the open verdicts to all. It doesn't wait for their answers; Run does before it returns, so that a
// coordinator that leaves has handed over what it last found.
func (a *Agent) broadcast(ctx context.Context, b *Broadcast) {
	m := a.mesh.Load()
	if m == nil {
		return
	}
	body := encodeOpen(a.self.Name, b.Turn, b.Open, b.Unresolved)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	answers, err := m.Ask(ctx, body)
	if err != nil {
		cancel()
		return
	}
	a.busy.Go(func() {
		defer cancel()
		for range answers { // the mesh sends until all have answered
			continue
		}
	})
}

// end lets the machine leave. When all processes end at once, a coordinator with open verdicts waits a moment for the
// others, so that it is the last. If others stay, the next of them coordinates.
func (a *Agent) end() {
	if to := a.outdated(); len(to) > 0 { // the list is still useful after this agent has ended
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		a.tellList(ctx, to)
		cancel()
	}
	if len(a.machine.Open()) == 0 {
		return
	}
	if a.machine.Leader() == a.self.Name {
		deadline := time.NewTimer(leaveTime)
		defer deadline.Stop()
		for late := false; a.others() && !late; {
			select {
			case <-a.wake: // perhaps a process left
			case <-deadline.C:
				late = true
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a.step(ctx, a.membership())
	a.step(ctx, Leave{Note: a.note(), Alone: !a.others()})
}

// others tells whether other processes run, as far as is known. Unreachable ones don't count: they don't know the open
// verdicts.
func (a *Agent) others() bool {
	return slices.ContainsFunc(a.membership().Members, func(o mesh.Status) bool {
		return o.Member.Name != a.self.Name && o.State != mesh.Left && o.State != mesh.Dead &&
			o.State != mesh.Unreachable
	})
}

// Settle lets RAS finish before the process ends, for as long as ctx allows. It waits until the job has been looked at
// after the last failure of a communicator here, or a verdict is open. If verdicts were open when it was called, it
// waits until the job has been looked at once more.
func (a *Agent) Settle(ctx context.Context) {
	began := time.Now()
	a.mu.Lock()
	open := len(a.open) > 0
	a.mu.Unlock()
	if open {
		a.put(AskedToLook{})
	}
	for {
		a.mu.Lock()
		done := a.failed.IsZero() || a.settled.After(a.failed) || len(a.open) > 0
		if open {
			done = !a.settled.Before(began)
		}
		changed := a.changed
		a.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

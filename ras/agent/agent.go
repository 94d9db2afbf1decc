package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config describes an Agent. Self, Slots and Now are required.
type Config struct {
	// Self is this process, as its mesh knows it.
	Self mesh.Member
	// Slots appends the process's in-flight table to a buffer.
	Slots func([]tape.Slot) []tape.Slot
	// Now is the tape's clock: CLOCK_MONOTONIC in nanoseconds.
	Now func() int64

	// Local is what is known of another process of this host that can't speak; nil knows nothing. FromTapes reads it
	// from where the job's tapes lie.
	Local func(mesh.Member) (verdict.Note, bool)
	// Busy says what the process does outside of Carillon, for its note; nil says nothing.
	Busy func() string

	// Event takes what there is to tell. It must not block. outward says that this process is the one to tell it to
	// receivers outside of the job; a process's own endpoint shows all.
	Event func(ev bus.Event, outward bool)
	// Open takes the open verdicts whenever one opened, changed or was withdrawn. It must not block, and must not modify
	// them. nil is not interested.
	Open func([]verdict.Verdict)

	// Timing is how fast it acts; zero fields take the defaults.
	Timing Timing
	// Logger hears what goes wrong between agents, at debug; nil discards it.
	Logger *slog.Logger
}

// Timing is how fast an Agent acts.
type Timing struct {
	// Gather is how long after the first news a coordinator asks: news rarely comes alone. Default 50ms.
	Gather time.Duration
	// Ask is how long notes may take to come. Default 2s.
	Ask time.Duration
	// Again and AgainMost are when a coordinator asks again while something is open: the first time, and in the end.
	// Defaults 1s and 5s.
	Again, AgainMost time.Duration
	// Look is how often the process looks whether it waits for one rank again and again. Default 10s.
	Look time.Duration
}

func (t Timing) complete() Timing {
	t.Gather = cmp.Or(t.Gather, 50*time.Millisecond)
	t.Ask = cmp.Or(t.Ask, 2*time.Second)
	t.Again = cmp.Or(t.Again, time.Second)
	t.AgainMost = max(cmp.Or(t.AgainMost, 5*time.Second), t.Again)
	t.Look = cmp.Or(t.Look, 10*time.Second)
	return t
}

// Agent is RAS in one process. Observe and ObserveStall are for whoever reads the tape, one call at a time; the other
// methods may be called from any goroutine.
type Agent struct {
	cfg  Config
	wake chan struct{} // something may be wrong, here or elsewhere; holds one

	mu      sync.Mutex
	book    *notebook
	trouble bool               // there is news here that the coordinator has not been told
	asked   bool               // somebody asks this process to coordinate a look
	about   []lifecycle.CommID // in which those who ask for a look wait
	topic   []lifecycle.CommID // what this process was asked about last
	leader  string             // the coordinator, as of the last step
	noted   int64              // when the coordinator was last given a note, by the tape's clock
	notes   uint64             // how often it was
	hush    func()             // ends the attempt to tell the coordinator; nil if there is none
	remote  []verdict.Verdict  // what a coordinator says is open
	past    []string           // and the IDs of those that it withdrew unresolved
	from    string             // who that is
	turn    uint64             // and for the how manieth time
	fresh   bool               // remote has not been taken over
	open    []verdict.Verdict  // as far as this process knows
	since   map[string]time.Time
	reached map[verdict.Reason]uint64 // verdicts that this process reached
	rounds  uint64                    // questions to all, so far
	failed  int64                     // when a communicator failed here last, by the tape's clock; 0: none did
	settled int64                     // when the last look that found something, or was over, began, by the tape's clock
	changed chan struct{}             // closed and replaced when settled changes
}

// New makes an Agent.
func New(cfg Config) (*Agent, error) {
	var errs []error
	if cfg.Self.Name == "" {
		errs = append(errs, errors.New("agent.Config.Self has no name; mesh.Self makes one"))
	}
	if cfg.Slots == nil || cfg.Now == nil {
		errs = append(errs, errors.New("agent.Config.Slots and Now are required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.Timing = cfg.Timing.complete()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Event == nil {
		cfg.Event = func(bus.Event, bool) {}
	}
	return &Agent{
		cfg: cfg, wake: make(chan struct{}, 1), book: newNotebook(), since: map[string]time.Time{},
		reached: map[verdict.Reason]uint64{}, changed: make(chan struct{}),
	}, nil
}

// Observe takes the tape's next event, of which it keeps nothing that is the caller's.
func (a *Agent) Observe(ev *tape.Event) {
	if !ev.IsLife && ev.Op.Stage != tape.StageWait { // most are not for the notebook
		return
	}
	a.mu.Lock()
	failed := a.book.observe(ev)
	if failed {
		a.failed = ev.Life.Time
	}
	a.mu.Unlock()
	if failed {
		a.commFailed(ev)
		a.troubled()
	}
}

// ObserveStall takes what stalls, and what does no longer.
func (a *Agent) ObserveStall(r *stall.Report) {
	a.mu.Lock()
	news := a.book.report(r)
	a.mu.Unlock()
	if news {
		a.troubled()
	}
}

// troubled has the coordinator look at the job.
func (a *Agent) troubled() {
	a.mu.Lock()
	a.trouble = true
	a.mu.Unlock()
	a.rouse()
}

func (a *Agent) rouse() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Note is what this process says of itself now.
func (a *Agent) Note() verdict.Note {
	self := &a.cfg.Self
	n := verdict.Note{Member: self.Name, Host: self.Host, PID: self.PID, Rank: self.Rank, JobSize: self.JobSize}
	table := a.cfg.Slots(nil)
	a.mu.Lock()
	now := a.cfg.Now()
	n.Slots, n.Closed = a.book.slots(table, now), a.book.closedLately(now)
	a.mu.Unlock()
	if a.cfg.Busy != nil {
		n.Where = a.cfg.Busy()
	}
	return n
}

// Open is a verdict that is open, and since when this process has known it.
type Open struct {
	verdict.Verdict
	Since time.Time
}

// Open lists the open verdicts, as far as this process knows. What it has is not to be modified.
func (a *Agent) Open() []Open {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]Open, 0, len(a.open))
	for _, v := range a.open {
		list = append(list, Open{v, a.since[v.ID()]})
	}
	return list
}

// Stats is what an Agent has counted since it was made.
type Stats struct {
	Rounds  uint64                    // how often it asked all for their notes
	Reached map[verdict.Reason]uint64 // the verdicts that it reached
}

// Stats counts.
func (a *Agent) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	reached := make(map[verdict.Reason]uint64, len(a.reached))
	for r, n := range a.reached {
		reached[r] = n
	}
	return Stats{Rounds: a.rounds, Reached: reached}
}

// Handle is mesh.Config.Handler.
func (a *Agent) Handle(_ context.Context, from string, question []byte) []byte {
	m, err := decode(question)
	if err != nil {
		a.cfg.Logger.Debug("a question that is none", "from", from, "error", err)
		return nil
	}
	switch m.Kind {
	case askNotes:
		return a.answer(from, m.About)
	case askLook:
		a.mu.Lock()
		a.asked = true
		a.about = among(append(a.about, m.About...))
		a.mu.Unlock()
		a.rouse()
	case tellOpen:
		a.told(m)
	default: // of a later version
		return nil
	}
	return []byte("ok")
}

// answer gives who asks this process's note. If that is the coordinator, it knows with it of the trouble here.
func (a *Agent) answer(from string, about []lifecycle.CommID) []byte {
	a.mu.Lock()
	a.topic = among(about)
	if from == a.leader {
		a.trouble = false
		a.notes++
		a.noted = a.cfg.Now()
		if a.hush != nil {
			a.hush()
		}
	}
	a.mu.Unlock()
	n := a.Note()
	return encodeNote(&n, about)
}

// maxAbout is how many communicators a question is about at most.
const maxAbout = 64

// among are some of the communicators, each once.
func among(comms []lifecycle.CommID) []lifecycle.CommID {
	slices.SortFunc(comms, func(a, b lifecycle.CommID) int { return bytes.Compare(a[:], b[:]) })
	comms = slices.Compact(comms)
	return comms[:min(len(comms), maxAbout)]
}

// told takes what the coordinator says is open.
func (a *Agent) told(m *message) {
	if m.From == a.cfg.Self.Name {
		return
	}
	a.mu.Lock()
	if m.From == a.from && m.Turn <= a.turn {
		a.mu.Unlock()
		return
	}
	a.from, a.turn, a.remote, a.past, a.fresh = m.From, m.Turn, m.Open, m.Unresolved, true
	a.mu.Unlock()
	a.rouse()
}

// LocalNote is mesh.Config.LocalNote.
func (a *Agent) LocalNote(of mesh.Member) []byte {
	if a.cfg.Local == nil {
		return nil
	}
	n, ok := a.cfg.Local(of)
	if !ok {
		return nil
	}
	a.mu.Lock()
	about := a.topic // of the question for which this process is asked to speak for the other
	a.mu.Unlock()
	return encodeNote(&n, about)
}

// Member is mesh.Config.OnEvent.
func (a *Agent) Member(e mesh.Event) {
	a.memberEvent(e)
	switch e.Kind {
	case mesh.Died, mesh.Halted, mesh.Resumed, mesh.Lost, mesh.Departed:
		a.mu.Lock()
		a.asked = true // all see it: no need to tell the coordinator
		if a.hush != nil && e.Member.Name == a.leader && e.Kind != mesh.Resumed {
			a.hush() // it won't answer
		}
		a.mu.Unlock()
		a.rouse()
	case mesh.Joined, mesh.Suspected:
	}
}

// Settle prepares the end of the process, for as long as ctx allows. Who ends at once takes along what it knows: so it waits until the job
// has been looked at since a communicator failed here last, or the reason is known; and if verdicts are open, until the coordinator, if that
// is this process, has looked once more whether they still hold.
func (a *Agent) Settle(ctx context.Context) {
	began := a.cfg.Now()
	a.mu.Lock()
	open := len(a.open) > 0
	if open {
		a.asked = true
	}
	a.mu.Unlock()
	if open {
		a.rouse()
	}
	for {
		a.mu.Lock()
		done := a.failed == 0 || a.settled > a.failed || len(a.open) > 0
		if open && a.leader == a.cfg.Self.Name {
			done = a.settled >= began
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

// settle notes that a look that began at the given time is over.
func (a *Agent) settle(began int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settled = began
	close(a.changed)
	a.changed = make(chan struct{})
}

// doubt is how long a coordinator that doesn't answer keeps its office: packets get lost, and two that coordinate tell
// everything twice.
const doubt = 5 * time.Second

// coordinator is the member that finds the verdicts: of those that answer, that with the lowest rank.
func coordinator(members []mesh.Status, now time.Time) string {
	best := -1
	for i := range members {
		s := &members[i]
		answers := s.State == mesh.Alive || s.State == mesh.Suspect && now.Sub(s.Since) < doubt
		if answers && (best < 0 || before(&s.Member, &members[best].Member)) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	return members[best].Member.Name
}

// before orders candidates: ranks come before processes without one.
func before(a, b *mesh.Member) bool {
	if (a.Rank < 0) != (b.Rank < 0) {
		return a.Rank >= 0
	}
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name)) < 0
}

// sortedByName is for notes: what is asked of many comes in any order.
func sortedByName(notes []verdict.Note) []verdict.Note {
	slices.SortFunc(notes, func(x, y verdict.Note) int { return cmp.Compare(x.Member, y.Member) })
	return notes
}

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// mostTries is how often an agent tells the coordinator of its trouble before it leaves that to the next stall report.
const mostTries = 5

// loop is what one Run works with.
type loop struct {
	*Agent
	mesh    *mesh.Mesh // nil: the process is alone
	tracker verdict.Tracker
	leads   bool // this process coordinated the last time
	turn    uint64
	telling sync.WaitGroup
	again   time.Duration // until the next round, 0 if there need not be one
	tries   int           // to tell of the trouble here
}

// Run coordinates with the other agents until ctx ends. m is the process's mesh, with Handle, LocalNote and Member in its
// Config, or nil if the process is the whole job. It blocks, and is called once.
func (a *Agent) Run(ctx context.Context, m *mesh.Mesh) {
	l := &loop{Agent: a, mesh: m}
	defer l.telling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := time.NewTicker(a.cfg.Timing.Look)
	defer look.Stop()
	again := time.NewTimer(time.Hour)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if !a.heldUp() {
				continue
			}
			a.mu.Lock()
			a.trouble = true
			a.mu.Unlock()
		case <-a.wake:
			l.again, l.tries = 0, 0
			if !sleep(ctx, a.cfg.Timing.Gather) {
				return
			}
		case <-again.C:
		}
		l.step(ctx)
		again.Stop()
		if l.again > 0 {
			again.Reset(l.again)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// heldUp forgets what is past, and tells whether somebody here waits for one rank again and again.
func (a *Agent) heldUp() bool {
	table := a.cfg.Slots(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	live := make(map[uint32]bool, len(table))
	for i := range table {
		live[table[i].Generation] = true
	}
	now := a.cfg.Now()
	a.book.prune(live, now)
	return a.book.heldUp(now)
}

// members are all that are known; this process alone if it has no mesh.
func (l *loop) members() []mesh.Status {
	if l.mesh == nil {
		return []mesh.Status{{Member: l.cfg.Self}}
	}
	return l.mesh.Members()
}

// step does what there is to do now, and says in again when there may be more.
func (l *loop) step(ctx context.Context) {
	leader := coordinator(l.members())
	if leader != l.cfg.Self.Name {
		l.leads = false
		l.follow(ctx, leader)
		return
	}
	l.mu.Lock()
	due := l.trouble || l.asked || len(l.open) > 0
	l.trouble, l.asked = false, false
	inherited := l.fresh
	if l.fresh {
		l.fresh = false
	}
	remote := l.remote
	l.mu.Unlock()
	if inherited && !l.leads { // what the last coordinator left open
		l.apply(remote, false)
		due = true
	}
	if !due {
		l.again = 0
		return
	}
	l.lead(ctx)
}

// follow takes over what the coordinator says, and tells it of trouble here.
func (l *loop) follow(ctx context.Context, leader string) {
	l.mu.Lock()
	trouble, fresh, open := l.trouble, l.fresh, l.remote
	l.trouble, l.asked, l.fresh = false, false, false
	l.mu.Unlock()
	if fresh {
		began := l.cfg.Now()
		l.apply(open, false)
		l.settle(began)
	}
	l.again = 0
	if len(l.tracker.Open()) > 0 {
		l.again = l.cfg.Timing.AgainMost // whether there is still a coordinator
	}
	if !trouble || leader == "" || l.tell(ctx, leader) {
		return
	}
	if l.tries++; l.tries < mostTries {
		l.mu.Lock()
		l.trouble = true
		l.mu.Unlock()
		l.again = l.cfg.Timing.Again
	}
}

// tell asks the coordinator to look, and reports whether it will.
func (l *loop) tell(ctx context.Context, leader string) bool {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timing.Ask)
	defer cancel()
	q, err := l.mesh.Ask(ctx, (&message{Kind: askLook}).encode(), leader)
	if err != nil {
		return false
	}
	for ans := range q.Answers() {
		if ans.By == leader {
			return true
		}
	}
	return false
}

// lead asks all for their notes and finds the verdicts.
func (l *loop) lead(ctx context.Context) {
	began := l.cfg.Now()
	notes := l.gather(ctx)
	if ctx.Err() != nil {
		return
	}
	notes = concerned(withFates(notes, l.members(), time.Now())) // their fates now: some may have died meanwhile
	takenOver := !l.leads
	l.leads = true
	before := l.tracker.Open()
	if l.apply(verdict.Diagnose(sortedByName(notes)), true) {
		l.broadcast(ctx)
	}
	if takenOver {
		l.repeat(before)
	}
	l.settle(began)
	if len(l.tracker.Open()) == 0 && !stalled(notes) {
		l.again = 0
		return
	}
	l.again = min(max(2*l.again, l.cfg.Timing.Again), l.cfg.Timing.AgainMost)
}

// gather asks all for their notes.
func (l *loop) gather(ctx context.Context) []verdict.Note {
	l.mu.Lock()
	l.rounds++
	l.mu.Unlock()
	if l.mesh == nil {
		return []verdict.Note{l.Note()}
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timing.Ask)
	defer cancel()
	q, err := l.mesh.Ask(ctx, (&message{Kind: askNotes}).encode())
	if err != nil {
		l.cfg.Logger.Debug("nobody can be asked", "error", err)
		return []verdict.Note{l.Note()}
	}
	var notes []verdict.Note
	for ans := range q.Answers() {
		n, err := decodeNote(ans.From, ans.Body)
		if err != nil {
			l.cfg.Logger.Debug("an answer that is no note", "from", ans.From, "by", ans.By, "error", err)
			continue
		}
		notes = append(notes, n)
	}
	return notes
}

// apply makes verdicts the open ones, tells what changed, and whether anything did.
func (l *loop) apply(verdicts []verdict.Verdict, reached bool) bool {
	changes := l.tracker.Update(verdicts)
	now := time.Now()
	l.mu.Lock()
	l.open = l.tracker.Open()
	for i := range changes {
		v := &changes[i].Verdict
		switch changes[i].Kind {
		case verdict.Opened:
			l.since[v.ID()] = now
			if reached {
				l.reached[v.Reason]++
			}
		case verdict.Withdrawn:
			delete(l.since, v.ID())
		case verdict.Changed:
		}
	}
	open := l.open
	l.mu.Unlock()
	if len(changes) == 0 {
		return false
	}
	if l.cfg.Open != nil {
		l.cfg.Open(open)
	}
	for i := range changes {
		l.cfg.Event(verdictEvent(&changes[i], now), reached)
	}
	return true
}

// repeat tells receivers outside what is still open that the coordinator before this one told them of: they may have
// heard of it, or not.
func (l *loop) repeat(before []verdict.Verdict) {
	still := map[string]bool{}
	for i := range before {
		still[before[i].ID()] = true
	}
	for _, v := range l.tracker.Open() {
		if still[v.ID()] {
			l.cfg.Event(verdictEvent(&verdict.Change{Kind: verdict.Changed, Verdict: v}, time.Now()), true)
		}
	}
}

// broadcast tells all what is open. It doesn't wait for them.
func (l *loop) broadcast(ctx context.Context) {
	if l.mesh == nil {
		return
	}
	l.turn++
	body := encodeOpen(l.cfg.Self.Name, l.turn, l.tracker.Open())
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timing.Ask)
	q, err := l.mesh.Ask(ctx, body)
	if err != nil {
		cancel()
		return
	}
	l.telling.Go(func() {
		defer cancel()
		for range q.Answers() { // until all know
			continue
		}
	})
}

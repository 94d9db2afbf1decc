package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Keeper watches processes of this host that are not in the mesh: it knows which of them run, are stopped, or have
// ended. Its Members are Config.Kept. Its methods may be called from any goroutine; Close ends it.
type Keeper struct {
	event  func(mesh.Event)
	exited func(mesh.Member, process.Exit)
	stop   chan struct{}
	done   chan struct{}

	mu      sync.Mutex // also held while event and exited are called, so that their calls are in order
	members map[string]*kept
	ends    chan struct{} // is closed, and replaced, when a process ends
}

// kept is one process.
type kept struct {
	mesh.Status
	glance  process.Look // the last one
	since   time.Time    // of the first look in a row that equals glance
	closed  func() bool
	unwatch func()
	over    bool // the process has ended
}

// keepInterval is how often a Keeper looks whether processes are stopped. A process is stopped if two looks in a row
// find it so and it did not run in between: a debugger that traces system calls stops a process for moments.
const keepInterval = 250 * time.Millisecond

// NewKeeper returns a Keeper that watches no process until Add. event is called with what happens to the processes, and
// exited with how they end, in order or not. They are called by one goroutine at a time, and must neither block nor
// call the Keeper.
func NewKeeper(event func(mesh.Event), exited func(mesh.Member, process.Exit)) *Keeper {
	k := &Keeper{
		event: event, exited: exited, stop: make(chan struct{}), done: make(chan struct{}), members: map[string]*kept{},
		ends: make(chan struct{}),
	}
	go k.run()
	return k
}

// Add watches a process. closed reports whether the process closed its tape; it is called when the process has ended,
// and must not call the Keeper.
func (k *Keeper) Add(m mesh.Member, closed func() bool) {
	p := &kept{Status: mesh.Status{Member: m, Since: time.Now()}, closed: closed, unwatch: func() {}}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.members[m.Name] = p
	k.event(mesh.Event{Status: p.Status, Joined: true})
	unwatch, err := m.Watch(func(exit process.Exit) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.ended(p, exit)
	})
	if err != nil {
		k.ended(p, process.ExitOf(err))
		return
	}
	p.unwatch = unwatch
}

// Left tells that a process has closed its tape: it has ended in order, or is about to.
func (k *Keeper) Left(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.members[name]; p != nil && p.State != mesh.Dead {
		k.change(p, mesh.Left, mesh.CauseTold, time.Now())
	}
}

// Members is what is known of all processes that were added, by rank.
func (k *Keeper) Members() []mesh.Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]mesh.Status, 0, len(k.members))
	for _, p := range k.members {
		all = append(all, p.Status)
	}
	slices.SortFunc(all, func(a, b mesh.Status) int { return byRank(&a.Member, &b.Member) })
	return all
}

// Await waits until all processes have ended, or ctx has.
func (k *Keeper) Await(ctx context.Context) {
	for {
		k.mu.Lock()
		ends := k.ends
		more := slices.ContainsFunc(slices.Collect(maps.Values(k.members)), func(p *kept) bool { return !p.over })
		k.mu.Unlock()
		if !more {
			return
		}
		select {
		case <-ends:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the watch. When it returns, all that happened until then has been reported.
func (k *Keeper) Close() {
	close(k.stop)
	<-k.done
	k.mu.Lock()
	var all []func()
	for _, p := range k.members {
		all = append(all, p.unwatch)
	}
	k.mu.Unlock()
	for _, unwatch := range all { // unlocked: unwatch waits for a call that may wait for the lock
		unwatch()
	}
}

func (k *Keeper) run() {
	defer close(k.done)
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-ticker.C:
		}
		k.mu.Lock()
		for _, p := range k.members {
			k.look(p)
		}
		k.mu.Unlock()
	}
}

// look checks whether a process is stopped. The watch reports its end.
func (k *Keeper) look(p *kept) {
	if p.State == mesh.Left || p.State == mesh.Dead {
		return
	}
	now := time.Now()
	switch look, err := p.Member.Look(); {
	case err != nil: // it has ended, or can't be read
	case look.State == process.Runs:
		p.glance = look
		if p.State == mesh.Stopped {
			k.change(p, mesh.Alive, mesh.CauseRuns, now)
		}
	case p.State == mesh.Stopped:
	case look != p.glance:
		p.glance, p.since = look, now
	default:
		k.change(p, mesh.Stopped, mesh.StopCause(look.State), p.since)
	}
}

// ended records a process's end.
func (k *Keeper) ended(p *kept, exit process.Exit) {
	p.over = true
	close(k.ends)
	k.ends = make(chan struct{})
	k.exited(p.Member, exit)
	switch {
	case exit.Code == 0 && p.State == mesh.Left:
	case exit.Code == 0 && p.closed():
		k.change(p, mesh.Left, mesh.CauseTold, time.Now())
	default: // programs close their tapes on their way out when they fail, too
		p.Exit = exit
		k.change(p, mesh.Ended(exit), mesh.CauseExit, time.Now())
	}
}

func (k *Keeper) change(p *kept, to mesh.State, cause mesh.Cause, since time.Time) {
	p.State, p.Since, p.Cause = to, since, cause
	k.event(mesh.Event{Status: p.Status})
}

package mesh

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// watcher makes this process a witness: it watches the next members on its host, and finds out why others are silent.
type watcher struct {
	m     *Mesh
	awake chan struct{}
	inbox chan func() // calls for its goroutine

	// Used by its goroutine only.
	silent   map[string]bool     // members under examination, each by a goroutine of its own
	near     int                 // the table's near when the ring was read
	ring     []Member            // to be watched
	watched  map[instance]func() // stops the watch for a process's end
	stopping map[string]glance   // found stopped once, and not yet again after confirmStop
	checked  time.Time           // when the ring was checked last
	rejoined time.Time
	forgot   time.Time // when table.forget was called last
}

// StopCause is the cause of a stop by the state that the process was found in.
func StopCause(s process.State) Cause {
	return [...]Cause{process.Stopped: CauseSignal, process.Traced: CauseTraced, process.Frozen: CauseFrozen}[s]
}

// glance is when a process was first seen stopped, and in what state.
type glance struct {
	at   time.Time
	look process.Look
}

const (
	// confirmStop is how long a process must be found stopped without running in between: a debugger that traces system
	// calls stops a process for moments.
	confirmStop = 250 * time.Millisecond
	// reconnectInterval is how often one of the unreachable members is tried again.
	reconnectInterval = 5 * time.Second
	maxInbox          = 4096
	maxExamined       = 8
	// lateTick is after how many intervals without a tick this process must have been stopped itself.
	lateTick = 5
)

func newWatcher(m *Mesh) *watcher {
	return &watcher{
		m: m, awake: make(chan struct{}, 1), inbox: make(chan func(), maxInbox), silent: make(map[string]bool),
		watched: make(map[instance]func()), stopping: make(map[string]glance),
		checked: time.Now(), rejoined: time.Now(), forgot: time.Now(),
	}
}

// signal leaves a token in a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// about makes the watcher's goroutine call f with a member's status, unless the member is gone for good by then. It
// does not wait. here tells whether the member is on this host. If the inbox is full, f is dropped, as the watcher
// checks its ring regularly anyway.
func (w *watcher) about(name string, f func(st *Status, here bool)) {
	select {
	case w.inbox <- func() {
		st, ok := w.m.Member(name)
		if ok && name != w.m.self.Name && (!st.State.gone() || st.Cause == CauseRefused) {
			f(&st, st.Member.sameHost(&w.m.self))
		}
	}:
	default:
	}
	signal(w.awake)
}

// post makes the watcher's goroutine call f, and waits until the inbox has room.
func (w *watcher) post(f func()) {
	select {
	case w.inbox <- f:
		signal(w.awake)
	case <-w.m.ctx.Done():
	}
}

func (w *watcher) run() {
	defer func() {
		for _, stop := range w.watched {
			stop()
		}
	}()
	timer := time.NewTimer(w.m.config.Tuning.CheckInterval)
	defer timer.Stop()
	for {
		select {
		case <-w.m.ctx.Done():
			return
		case <-w.awake:
		case <-timer.C:
		}
		for len(w.inbox) > 0 {
			(<-w.inbox)()
		}
		w.rewatch()
		now := time.Now()
		if due := w.checked.Add(w.m.config.Tuning.CheckInterval); !now.Before(due) {
			w.checked = due // delays don't add up
			if now.Sub(due) >= w.m.config.Tuning.CheckInterval {
				w.checked = now
			}
			w.tick(now.Sub(due))
		}
		timer.Reset(max(time.Until(w.checked.Add(w.m.config.Tuning.CheckInterval)), time.Millisecond))
	}
}

// check answers msgCheck about a member of this host.
func (w *watcher) check(st *Status, here bool) {
	if here && w.look(st) == Alive {
		w.announceRuns(&st.Member)
	}
}

// missed finds out why a member did not answer a probe.
func (w *watcher) missed(st *Status, here bool) {
	if here {
		w.look(st)
	} else {
		w.examine(st.Member)
	}
}

// unanswered finds out about a member that memberlist calls dead. joined is the table's value when it fell silent. A
// member of another host becomes unreachable, unless it joins again or a witness reports its state within WitnessTime.
func (w *watcher) unanswered(st *Status, here bool, joined uint64) {
	name := st.Member.Name
	switch {
	case !st.State.running():
	case here:
		if w.look(st) == Alive {
			w.m.change(func(t *table) []Event { return t.silent(name, time.Now()) })
			w.announceRuns(&st.Member)
		}
	default:
		w.askWitnesses(&st.Member)
		time.AfterFunc(w.m.config.Tuning.WitnessTime, func() {
			w.post(func() {
				w.m.change(func(t *table) []Event {
					if t.joined(name) != joined {
						return nil
					}
					return t.lost(name, time.Now())
				})
			})
		})
	}
}

// announceRuns announces that a silent process of this host is running, to some members elsewhere directly.
func (w *watcher) announceRuns(m *Member) {
	f := w.fate(m, Alive, CauseRuns)
	w.m.hear(f)
	w.m.spread(f, 0, directFar)
}

func (w *watcher) fate(m *Member, s State, c Cause) *fate {
	return &fate{name: m.Name, instance: m.Instance, state: s, cause: c, at: w.m.host.Now(), by: w.m.self.Name}
}

func (w *watcher) dead(m *Member, exit process.Exit) {
	f := w.fate(m, Ended(exit), CauseExit)
	f.exit = exit
	w.m.announce(f)
}

// look reads the state of a process of this host and announces changes. It returns Alive if the process is running.
func (w *watcher) look(st *Status) State {
	m := &st.Member
	look, err := w.m.host.Look(m.ID)
	now := time.Now()
	switch {
	case errors.Is(err, process.ErrGone):
		delete(w.stopping, m.Name)
		w.dead(m, process.Exit{})
		return Dead
	case err != nil:
		return Suspect // its state can't be read
	case look.State == process.Runs:
		delete(w.stopping, m.Name)
		if st.State == Stopped {
			w.m.announce(w.fate(m, Alive, CauseRuns))
		}
		return Alive
	}
	g, ok := w.stopping[m.Name]
	switch {
	case st.State == Stopped:
		delete(w.stopping, m.Name)
	case !ok || g.look != look:
		w.stopping[m.Name] = glance{now, look}
		time.AfterFunc(confirmStop, func() { w.post(func() { w.confirm(m.Name) }) })
	case now.Sub(g.at) >= confirmStop:
		delete(w.stopping, m.Name)
		f := w.fate(m, Stopped, StopCause(look.State))
		f.age = now.Sub(g.at)
		w.m.announce(f)
	}
	return Stopped
}

// confirm looks again at a process that was found stopped.
func (w *watcher) confirm(name string) {
	if st, ok := w.m.Member(name); ok && !st.State.gone() {
		w.look(&st)
	} else {
		delete(w.stopping, name)
	}
}

// rewatch updates the watches after a change on this host.
func (w *watcher) rewatch() {
	w.m.mu.Lock()
	if w.near == w.m.table.near {
		w.m.mu.Unlock()
		return
	}
	w.near, w.ring = w.m.table.near, w.m.table.ring(1)
	w.m.mu.Unlock()
	wanted := make(map[instance]bool, len(w.ring))
	for i := range w.ring {
		m := &w.ring[i]
		key := m.instance()
		wanted[key] = true
		if _, ok := w.watched[key]; !ok {
			w.watch(m, key)
		}
	}
	for key, stop := range w.watched {
		if !wanted[key] {
			delete(w.watched, key)
			stop()
		}
	}
}

func (w *watcher) watch(m *Member, key instance) {
	stop, err := w.m.host.Watch(m.ID, func(exit process.Exit) {
		w.about(key.Name, func(st *Status, _ bool) {
			if st.Member.Instance == key.ID {
				w.dead(&st.Member, exit)
			}
		})
	})
	if err != nil {
		stop = func() {}
		w.dead(m, process.ExitOf(err))
	}
	w.watched[key] = stop
}

// tick checks the ring, and from time to time forgets members and rejoins those out of reach. late is its delay.
func (w *watcher) tick(late time.Duration) {
	t := &w.m.config.Tuning
	for i := range w.ring {
		if st, ok := w.m.Member(w.ring[i].Name); ok {
			w.look(&st)
		}
	}
	now := time.Now()
	if now.Sub(w.forgot) >= forgetInterval {
		w.forgot = now
		w.m.change(func(t *table) []Event {
			t.forget(now)
			return nil
		})
	}
	switch {
	case late > lateTick*t.CheckInterval: // this process was stopped, so others may take it for unreachable
		w.rejoin(func(st Status) bool { return st.State != Left })
	case now.Sub(w.rejoined) >= reconnectInterval:
		w.rejoined = now
		w.rejoin(func(st Status) bool {
			return st.State == Unreachable || st.State == Dead && st.Cause == CauseRefused || st.State == Suspect
		})
	}
}

// rejoin exchanges states with one of the members that ok accepts.
func (w *watcher) rejoin(ok func(Status) bool) {
	var some []Member
	for _, st := range w.m.Members() {
		if st.Member.Name != w.m.self.Name && ok(st) {
			some = append(some, st.Member)
		}
	}
	if len(some) == 0 {
		return
	}
	to := some[w.m.rand.IntN(len(some))]
	w.m.spawn(func() {
		if _, err := w.m.list.Join([]string{to.Addr.String()}); err != nil {
			return // it is tried again
		}
		// Something answers at the address; only the member itself answers a probe.
		if err := w.m.ping(&to); err == nil {
			w.m.change(func(t *table) []Event { return t.answers(to.Name, time.Now()) })
		}
	})
}

// askWitnesses asks two members of a member's host for its state.
func (w *watcher) askWitnesses(m *Member) {
	w.m.mu.Lock()
	var peers []Member
	for _, p := range w.m.table.host(m.hostKey(), State.running) {
		if p.Name != m.Name {
			peers = append(peers, *p)
		}
	}
	w.m.mu.Unlock()
	w.m.rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	for i := range peers[:min(len(peers), 2)] {
		w.m.send(&peers[i], nameMessage(msgCheck, m.instance()))
	}
}

// examine finds out, on a goroutine of its own, why a member on another host did not answer a probe.
func (w *watcher) examine(m Member) {
	if w.silent[m.Name] || len(w.silent) >= maxExamined {
		return
	}
	w.silent[m.Name] = true
	w.askWitnesses(&m)
	w.m.spawn(func() {
		w.probe(&m)
		w.post(func() { delete(w.silent, m.Name) })
	})
}

// probe probes a member until it answers or its fate is known.
func (w *watcher) probe(m *Member) {
	t := &w.m.config.Tuning
	for {
		st, ok := w.m.Member(m.Name)
		if !ok || !st.State.running() || st.Member.Instance != m.Instance || w.m.ctx.Err() != nil {
			return
		}
		began := time.Now()
		if err := w.m.ping(m); err == nil {
			w.m.change(func(t *table) []Event { return t.answers(m.Name, time.Now()) })
			return
		}
		w.m.change(func(t *table) []Event { return t.silent(m.Name, began) })
		if w.refused(m) {
			w.m.announce(w.fate(m, Dead, CauseRefused))
			return
		}
		pause(w.m.ctx, t.ProbeInterval)
	}
}

// ping probes a member once, for ProbeTimeout at most. It returns at once when the mesh is closed.
func (m *Mesh) ping(to *Member) error {
	name, addr := to.Name, net.UDPAddrFromAddrPort(to.Addr)
	done := make(chan error, 1)
	go func() {
		_, err := m.list.Ping(name, addr)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-m.ctx.Done():
		return ErrClosed
	}
}

// refused tells whether a member's host refuses connections to its port, two times in a row.
func (w *watcher) refused(m *Member) bool {
	t := &w.m.config.Tuning
	for range 2 {
		conn, err := w.m.transport.DialTimeout(m.Addr.String(), t.ProbeTimeout)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return false
		}
		pause(w.m.ctx, t.ProbeTimeout/4)
	}
	return true
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

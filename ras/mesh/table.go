package mesh

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// table is what this process knows of all members: a state machine without clock or I/O. Its methods return events.
type table struct {
	self    Member
	entries map[string]*entry
	// final has instances that are gone for good, so that no late message revives them.
	final recent[instance]
	// near counts the changes on this host, and joins the calls of join.
	near  int
	joins uint64
}

// instance names one mesh of a process.
type instance struct {
	Name string
	ID   uint64
}

type entry struct {
	Status
	at   int64 // of the last fate, by the clock of its host
	seen bool  // whether a witness saw its end: it is final
	// away says that it was stopped, unreachable or dead at its last event. Otherwise only a suspicion ends when it
	// runs: see Event.Passing.
	away bool
	// joined is the table's joins at the member's last join. A join ends any silence noted before.
	joined uint64
}

const (
	// forgetTime is how long a member that is gone or out of reach stays in the table after another one took its rank;
	// forgetInterval is how often such members are removed. Those that are gone stay in final; those that were out of
	// reach may join again.
	forgetTime     = time.Hour
	forgetInterval = forgetTime / 60
	// maxAway bounds the members that have been gone or out of reach for longer than that and whose ranks no other
	// member has: an elastic job may give each new process a new rank.
	maxAway = 4096
	// watches is how many running members of its host each member watches.
	watches = 2
)

func newTable(self Member) *table { return &table{self: self, entries: make(map[string]*entry)} }

func (t *table) gone(name string, id uint64) bool { return t.final.has(instance{name, id}) }

// become puts a member into a fate's state, since the given time.
func (e *entry) become(f *fate, since time.Time) []Event {
	e.State, e.Since, e.Cause, e.Exit, e.By = f.state, since, f.cause, f.exit, f.by
	ev := Event{Status: e.Status}
	switch f.state {
	case Dead, Stopped, Unreachable:
		e.away = true
	case Alive:
		ev.Passing, e.away = !e.away, false
	case Left, Suspect:
	}
	return []Event{ev}
}

// join records that a member answers.
func (t *table) join(m Member, now time.Time) (events []Event) {
	if t.gone(m.Name, m.Instance) {
		return nil
	}
	t.joins++
	e := t.entries[m.Name]
	if e != nil && e.Member.Instance != m.Instance {
		t.final.add(e.Member.instance())
		if !e.State.gone() {
			events = e.become(&fate{state: Left, cause: CauseReplaced}, now)
		}
		e = nil
	}
	if e == nil {
		e = &entry{Status: Status{Member: m, Since: now, Cause: CauseTold}, joined: t.joins}
		t.entries[m.Name] = e
		return append(events, Event{Status: e.Status, Joined: true})
	}
	e.Member, e.joined = m, t.joins
	if e.State != Alive {
		return e.become(&fate{state: Alive, cause: CauseAnswers}, now)
	}
	return nil
}

// silent records that a member does not answer.
func (t *table) silent(name string, now time.Time) []Event {
	e := t.entries[name]
	if e == nil || e.State != Alive {
		return nil
	}
	return e.become(&fate{state: Suspect, cause: CauseSilence}, now)
}

// lost records that a member is unreachable: it does not answer, and no witness reported why.
func (t *table) lost(name string, since time.Time) []Event {
	e := t.entries[name]
	if e == nil || !e.State.running() || (e.State == Suspect && e.Cause == CauseRuns) {
		return nil
	}
	return e.become(&fate{state: Unreachable, cause: CauseSilence}, since)
}

// joined is the value of joins at a member's last join; 0 if it is not known.
func (t *table) joined(name string) uint64 {
	if e := t.entries[name]; e != nil {
		return e.joined
	}
	return 0
}

// answers records that a member answers again.
func (t *table) answers(name string, now time.Time) []Event {
	e := t.entries[name]
	if e == nil || e.State == Alive || e.State == Stopped || e.seen {
		return nil
	}
	return e.become(&fate{state: Alive, cause: CauseAnswers}, now)
}

// observe records a fate. fresh says that it is new and must be forwarded.
func (t *table) observe(f *fate, now time.Time) (events []Event, fresh bool) {
	if f.name == t.self.Name {
		return nil, false
	}
	e := t.entries[f.name]
	if e == nil || e.Member.Instance != f.instance {
		if f.state.gone() && f.cause != CauseRefused && !t.gone(f.name, f.instance) {
			t.final.add(instance{f.name, f.instance})
			return nil, true
		}
		return nil, false
	}
	next, since := *f, now.Add(-f.age)
	if !f.state.gone() {
		next.exit = process.Exit{}
	}
	switch {
	case f.state == Dead && f.cause == CauseRefused:
		if e.State.gone() || e.State == Stopped {
			return nil, false
		}
	case f.state.gone():
		if e.seen {
			return nil, false
		}
		t.final.add(e.Member.instance())
		e.seen = true
		if e.State == Dead { // because its port refused; now it is certain
			e.Cause, e.Exit, e.By = f.cause, f.exit, f.by
			return nil, true
		}
	case e.seen || f.at <= e.at:
		return nil, false
	default:
		e.at = f.at
		switch {
		case f.state == e.State || e.State == Left:
			return nil, false
		case f.state == Stopped || e.State == Stopped:
		case e.State == Suspect: // it runs, and still does not answer
			fresh = e.Cause != f.cause
			e.Cause, e.By = f.cause, f.by
			return nil, fresh
		default: // it was unreachable, or dead because its port refused
			fresh = e.Cause != f.cause
			next.state = Suspect
			return e.become(&next, now), fresh
		}
	}
	return e.become(&next, since), true
}

// forget removes members that have been gone or out of reach for forgetTime and whose rank has another member, which is
// running or came later. Of the last members of each rank, the latest maxAway stay.
func (t *table) forget(now time.Time) {
	last := make(map[int]*entry) // of each rank
	for _, e := range t.entries {
		if o := last[e.Member.Rank]; o == nil || e.succeeds(o) {
			last[e.Member.Rank] = e
		}
	}
	var away []*entry
	for _, e := range t.entries {
		switch {
		case !e.State.gone() && e.State != Unreachable || now.Sub(e.Since) < forgetTime:
		case e.Member.Rank < 0 || last[e.Member.Rank] != e:
			t.drop(e)
		default:
			away = append(away, e)
		}
	}
	if over := len(away) - maxAway; over > 0 {
		slices.SortFunc(away, func(a, b *entry) int { return a.Since.Compare(b.Since) })
		for _, e := range away[:over] {
			t.drop(e)
		}
	}
}

func (t *table) drop(e *entry) {
	if e.State.gone() {
		t.final.add(e.Member.instance())
	}
	delete(t.entries, e.Member.Name)
}

// succeeds says whether e has the rank that it shares with o now, or had it later.
func (e *entry) succeeds(o *entry) bool {
	if runs := e.State.running(); runs != o.State.running() {
		return runs
	}
	return e.joined > o.joined
}

// fates returns what others may have missed: the fates of all members that witnesses saw stopped or gone.
func (t *table) fates(now time.Time) []fate {
	var all []fate
	for _, e := range t.entries {
		if e.State == Stopped || e.State.gone() && e.seen {
			all = append(all, fate{
				name: e.Member.Name, instance: e.Member.Instance, state: e.State, cause: e.Cause, at: e.at,
				age: now.Sub(e.Since), exit: e.Exit, by: cmp.Or(e.By, t.self.Name),
			})
		}
	}
	slices.SortFunc(all, func(a, b fate) int { // the latest first
		return cmp.Or(cmp.Compare(a.age, b.age), cmp.Compare(a.name, b.name))
	})
	return all
}

// host lists a host's members whose state is ok, in the ring's order and including self.
func (t *table) host(key hostKey, ok func(State) bool) []*Member {
	var all []*Member
	for _, e := range t.entries {
		if e.Member.hostKey() == key && ok(e.State) {
			all = append(all, &e.Member)
		}
	}
	slices.SortFunc(all, byHostAndRank)
	return all
}

// ring lists self's neighbours on its host, up to the second one that runs: for a step of 1 the next ones, which self
// watches, and for -1 the previous ones, which watch self.
func (t *table) ring(step int) []Member {
	all := t.host(t.self.hostKey(), func(s State) bool { return !s.gone() })
	at := slices.IndexFunc(all, func(m *Member) bool { return m.Name == t.self.Name })
	var next []Member
	for i, running := 1, 0; i < len(all) && running < watches; i++ {
		m := all[(at+len(all)+i*step)%len(all)]
		next = append(next, *m)
		if t.entries[m.Name].State != Stopped {
			running++
		}
	}
	return next
}

// some picks members for direct messages: near of this host, and far of others, on as many hosts as possible. The
// choice is random, so that different witnesses pick different members.
func (t *table) some(near, far int, chance *rand.Rand) []Member {
	names := slices.Sorted(maps.Keys(t.entries))
	chance.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	hosts := make(map[hostKey]bool)
	var here, there, more []Member
	for _, name := range names {
		e := t.entries[name]
		m := e.Member
		switch {
		case name == t.self.Name || !e.State.running():
		case m.sameHost(&t.self):
			here = append(here, m)
		case hosts[m.hostKey()]:
			more = append(more, m)
		default:
			hosts[m.hostKey()] = true
			there = append(there, m)
		}
	}
	there = append(there, more...)
	return append(here[:min(len(here), near)], there[:min(len(there), far)]...)
}

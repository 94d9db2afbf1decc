package mesh

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/telemetry/process"
)

func memberAt(host string, rank int) Member {
	return Member{Name: nameOf(host, rank+1), Host: host, ID: process.ID{PID: rank + 1}, Rank: rank, Instance: 1}
}

var then = time.Unix(1000, 0)

// TestSomeFollowFromChance: which members a witness informs at once depends on the given source of randomness alone.
func TestSomeFollowFromChance(t *testing.T) {
	pick := func(seed uint64) (names []string) {
		table := newTable(memberAt("a", 0))
		for i := range 64 {
			table.join(memberAt(string(rune('a'+i%8)), i), then)
		}
		for _, m := range table.some(4, 8, rand.New(rand.NewPCG(seed, 0))) {
			names = append(names, m.Name)
		}
		return names
	}
	first := pick(1)
	if len(first) != 4+8 {
		t.Errorf("picked %v, want 4 near and 8 far", first)
	}
	if again := pick(1); !slices.Equal(first, again) {
		t.Errorf("with one seed, %v and then %v", first, again)
	}
	if other := pick(2); slices.Equal(first, other) {
		t.Errorf("another seed picks the same: %v", other)
	}
}

// TestTable: what a member hears, in some order, and what it reports.
func TestTable(t *testing.T) {
	self, o := memberAt("a", 0), memberAt("b", 1)
	next := o
	next.Instance = 2
	type step func(*table) []Event
	observe := func(s State, c Cause, at int64) step {
		return func(t *table) []Event {
			e, _ := t.observe(&fate{name: o.Name, instance: 1, state: s, cause: c, at: at, by: "b-9"}, then)
			return e
		}
	}
	join := func(m Member) step { return func(t *table) []Event { return t.join(m, then) } }
	silent := func(t *table) []Event { return t.silent(o.Name, then) }
	lost := func(t *table) []Event { return t.lost(o.Name, then) }
	answers := func(t *table) []Event { return t.answers(o.Name, then) }
	for _, c := range []struct {
		name  string
		steps []step
		want  string
		state State
	}{
		{"silence", []step{join(o), silent, silent, lost, lost}, "joined suspect unreachable", Unreachable},
		{
			"a suspicion that came to nothing, twice",
			[]step{join(o), silent, answers, silent, join(o)},
			"joined suspect passing resumed suspect passing resumed", Alive,
		},
		{
			"out of reach, known to run, and then it answers; later a suspicion",
			[]step{join(o), silent, lost, observe(Alive, CauseRuns, 5), answers, silent, answers},
			"joined suspect unreachable suspect resumed suspect passing resumed", Alive,
		},
		{
			"it answers again",
			[]step{join(o), silent, lost, answers, answers},
			"joined suspect unreachable resumed",
			Alive,
		},
		{
			"seen dead, once, and for good",
			[]step{
				join(o), observe(Dead, CauseExit, 5), observe(Dead, CauseExit, 6), observe(Alive, CauseRuns, 7),
				join(o), answers, silent, lost,
			},
			"joined dead", Dead,
		},
		{
			"left, then its process ends",
			[]step{join(o), observe(Left, CauseTold, 0), observe(Dead, CauseExit, 5)},
			"joined left", Left,
		},
		{
			"stopped, does not answer, runs again",
			[]step{join(o), observe(Stopped, CauseSignal, 5), silent, lost, answers, observe(Alive, CauseRuns, 6)},
			"joined stopped resumed", Alive,
		},
		{"old news", []step{join(o), observe(Alive, CauseRuns, 9), observe(Stopped, CauseSignal, 5)}, "joined", Alive},
		{
			"silent and known to run",
			[]step{join(o), silent, observe(Alive, CauseRuns, 5), lost},
			"joined suspect",
			Suspect,
		},
		{
			"given up, then known to run",
			[]step{join(o), silent, lost, observe(Alive, CauseRuns, 5)},
			"joined suspect unreachable suspect", Suspect,
		},
		{
			"its port refuses, and then it answers",
			[]step{join(o), silent, observe(Dead, CauseRefused, 0), answers},
			"joined suspect dead resumed", Alive,
		},
		{"its port refuses, and then it is seen dead", []step{
			join(o), observe(Dead, CauseRefused, 0),
			observe(Dead, CauseExit, 5), answers,
		}, "joined dead", Dead},
		{"dead before it was known", []step{observe(Dead, CauseExit, 5), join(o)}, "", Alive},
		{
			"another mesh of the same process",
			[]step{join(o), join(next), observe(Dead, CauseExit, 5)},
			"joined left joined",
			Alive,
		},
	} {
		table := newTable(self)
		table.join(self, then)
		var told []string
		for _, s := range c.steps {
			for _, e := range s(table) {
				kind := e.What()
				if e.Passing {
					kind = "passing " + kind
				}
				told = append(told, kind)
			}
		}
		if got := strings.Join(told, " "); got != c.want {
			t.Errorf("%s: told %q, want %q", c.name, got, c.want)
		}
		if e := table.entries[o.Name]; e != nil && e.State != c.state {
			t.Errorf("%s: it is %v, want %v", c.name, e.State, c.state)
		}
	}
}

func TestNobodyIsToldOfItself(t *testing.T) {
	self := memberAt("a", 0)
	table := newTable(self)
	table.join(self, then)
	events, fresh := table.observe(&fate{name: self.Name, instance: 1, state: Dead, cause: CauseExit, at: 5}, then)
	if len(events) > 0 || fresh {
		t.Errorf("told %v, passed on %v: want neither", events, fresh)
	}
}

// TestRingAndWatchersAgree: a member knows the members that watch it, whichever others are stopped or gone, so that it
// informs the right ones when it leaves. Two members that run watch all others, so that a death is seen also when one
// of the two dies with it.
func TestRingAndWatchersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "members")
		states := make([]State, n)
		for i := range states {
			states[i] = rapid.SampledFrom([]State{Alive, Alive, Suspect, Stopped, Dead, Left}).Draw(t,
				fmt.Sprint("state ", i))
		}
		tables := make([]*table, n)
		for i := range tables {
			tables[i] = newTable(memberAt("a", i))
			for k, s := range states {
				tables[i].join(memberAt("a", k), then)
				tables[i].entries[memberAt("a", k).Name].State = s
			}
		}
		running := 0
		for _, s := range states {
			if s.running() {
				running++
			}
		}
		for i := range n {
			if !states[i].running() {
				continue
			}
			var by, want []string
			for k := range n {
				ring := tables[k].ring(1)
				if states[k].running() && k != i &&
					slices.ContainsFunc(ring, func(m Member) bool { return m.Rank == i }) {
					want = append(want, memberAt("a", k).Name)
				}
			}
			for _, m := range tables[i].ring(-1) {
				if states[m.Rank].running() {
					by = append(by, m.Name)
				}
			}
			slices.Sort(by)
			slices.Sort(want)
			if !slices.Equal(by, want) {
				t.Fatalf("%v: member %d is watched by %v, and takes %v for its watchers", states, i, want, by)
			}
			if len(by) != min(2, running-1) {
				t.Fatalf("%v: member %d is watched by %v, want %d", states, i, by, min(2, running-1))
			}
		}
	})
}

// TestWhoAnsweredSinceIsNotGivenUp: a member that answers, be it for the second time, did not stay silent since before.
func TestWhoAnsweredSinceIsNotGivenUp(t *testing.T) {
	self, o := Member{Name: "a-1", Host: "a"}, Member{Name: "b-1", Host: "b", Instance: 7}
	table := newTable(self)
	now := time.Unix(100, 0)
	table.join(o, now)
	before := table.joined(o.Name)
	table.silent(o.Name, now)
	table.join(o, now)
	if after := table.joined(o.Name); after == before || before == 0 {
		t.Errorf("joined is %d, and %d when it answered again", before, after)
	}
	if n := table.joined("nobody"); n != 0 {
		t.Errorf("joined of nobody is %d, want 0", n)
	}
}

// TestForget: a member that is gone or out of reach is forgotten once another one has had its rank for long enough. No
// late message revives a member that is gone; a member that was out of reach is one again when it answers. The fate of
// the last member of each rank stays known, however long.
func TestForget(t *testing.T) {
	self := memberAt("a", 0)
	table := newTable(self)
	table.join(self, then)
	at := func(pid, rank int) Member {
		m := memberAt("b", pid)
		m.Rank = rank
		return m
	}
	ends := func(m Member, s State, c Cause, after time.Duration) {
		f := &fate{name: m.Name, instance: m.Instance, state: s, cause: c, at: 1, by: "b-99"}
		if _, fresh := table.observe(f, then.Add(after)); !fresh {
			t.Fatalf("%v: that it is %v is no news", m, s)
		}
	}
	var (
		replaced = at(1, 1) // dead, and its rank is another's
		present  = at(2, 1)
		refused  = at(3, 2) // dead as far as its port tells
		left     = at(4, 2) // a little later
		lost     = at(5, 3) // out of reach, and its rank is another's
		returns  = at(6, 3)
		last     = at(7, 4) // nobody has its rank
		rankless = at(8, -1)
		apart    = at(9, 5) // out of reach, and nobody has its rank
		early    = at(10, 6)
		late     = at(11, 6) // out of reach, after another one had its rank that ended later
	)
	for _, m := range []Member{replaced, present, refused, left, lost, returns, last, rankless, apart, early, late} {
		table.join(m, then)
	}
	for _, m := range []Member{apart, late} {
		table.silent(m.Name, then)
		table.lost(m.Name, then)
	}
	ends(early, Dead, CauseExit, time.Second)
	ends(replaced, Dead, CauseExit, 0)
	ends(refused, Dead, CauseRefused, 0)
	ends(left, Left, CauseTold, time.Second)
	ends(last, Dead, CauseExit, 0)
	ends(rankless, Left, CauseTold, 0)
	table.silent(lost.Name, then)
	table.lost(lost.Name, then)

	table.forget(then.Add(forgetTime - 1))
	if n := len(table.entries); n != 12 {
		t.Fatalf("%d members are left before their time, want 12", n)
	}
	table.forget(then.Add(forgetTime + time.Second))
	kept := []string{self.Name, present.Name, left.Name, returns.Name, last.Name, apart.Name, late.Name}
	got := slices.Sorted(maps.Keys(table.entries))
	if slices.Sort(kept); !slices.Equal(got, kept) {
		t.Errorf("%v are left, want %v", got, kept)
	}
	now := then.Add(2 * forgetTime)
	for _, m := range []Member{replaced, refused, rankless} {
		events := table.join(m, now)
		_, fresh := table.observe(&fate{name: m.Name, instance: m.Instance, state: Dead, cause: CauseExit, at: 5}, now)
		if len(events) > 0 || fresh || table.entries[m.Name] != nil {
			t.Errorf("%v is back: %v", m, events)
		}
	}
	if events := table.join(lost, now); len(events) != 1 || !events[0].Joined ||
		table.entries[lost.Name].State != Alive {
		t.Errorf("who was out of reach, and answers, is not a member again: %v", events)
	}
	table.silent(lost.Name, now)
	table.lost(lost.Name, now)
	if events := table.answers(apart.Name, now); len(events) != 1 || events[0].What() != "resumed" {
		t.Errorf("who is out of reach with a rank that nobody has comes back as %v", events)
	}
	later := left
	later.Instance++ // a new one of that rank
	table.join(later, now)
	table.forget(now)
	if e := table.entries[last.Name]; e == nil || e.State != Dead {
		t.Errorf("what became of rank %d is forgotten: %v", last.Rank, e)
	}
	if e := table.entries[later.Name]; e == nil || e.State != Alive {
		t.Errorf("rank %d is %v, want alive", later.Rank, e)
	}
}

// TestForgetThousands: however many members come and go, each with a rank of its own, only the latest of them are
// known, so that a process of an elastic job doesn't grow with its age.
func TestForgetThousands(t *testing.T) {
	self := memberAt("a", 0)
	table := newTable(self)
	table.join(self, then)
	now := then
	const each, rounds = 1000, 10
	for round := range rounds {
		for i := range each {
			m := memberAt("b", 1+round*each+i)
			table.join(m, now)
			if i%2 == 0 {
				table.observe(&fate{name: m.Name, instance: m.Instance, state: Dead, cause: CauseExit, at: 1}, now)
			} else {
				table.silent(m.Name, now)
				table.lost(m.Name, now)
			}
			now = now.Add(time.Second)
		}
		table.forget(now)
		if n := len(table.entries); n > 1+maxAway+int(forgetTime/time.Second) {
			t.Fatalf("after %d that came and went, %d members are known", (round+1)*each, n)
		}
	}
	table.forget(now.Add(forgetTime))
	if n := len(table.entries); n != 1+maxAway {
		t.Errorf("%d members are known in the end, want %d", n, 1+maxAway)
	}
	ends := len(table.final.now) + len(table.final.before)
	if last := memberAt("b", each*rounds); table.entries[last.Name] == nil || ends > 2*recentSize {
		t.Errorf("the last one is known as %v; of %d the end is remembered, want at most %d", table.entries[last.Name],
			ends, 2*recentSize)
	}
}

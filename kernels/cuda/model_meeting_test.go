package cuda

import (
	"iter"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// meetingRules are the rules of direct.h. A model without one of them is wrong.
type meetingRules struct {
	halves    int  // halves of the entries
	all       bool // a rank that knows that another one can't be accessed still waits for the entries of the others
	staged    bool // a rank that accesses no buffers leaves them at once
	leaves    bool // a launch ends after the others have left its buffers
	late      bool // ranks that read all of each other's buffers write their results after that
	takesBack bool // a block that gives up takes its entries back, instead of leaving
	way       bool // and waits for stores on their way to it
	stays     bool // and for ranks that may be accessing its buffers
}

func allMeetingRules() meetingRules {
	return meetingRules{
		halves: 2, all: true, staged: true, leaves: true, late: true, takesBack: true, way: true, stays: true,
	}
}

// meetingLaunch is a launch of a rank's stream: all ranks have the same.
type meetingLaunch struct {
	blocks int
	apart  int  // the rank whose buffers can't be accessed; -1: none
	whole  bool // ranks read all of each other's buffers, and write their own
}

type entry struct {
	round  int
	here   bool // the sender's buffer can be accessed
	unread bool
}

// link has the stores in flight from one rank to another.
type link struct {
	stores []func()
	ended  int
}

// sent returns when all stores now in flight have arrived.
func (w *link) sent() step {
	last := w.ended + len(w.stores)
	return func() bool { return w.ended >= last }
}

// meetingModel models ranks that access each other's buffers. A block is a thread, and so are the stores in flight from
// a rank to another one. A launch begins when the previous one has ended.
type meetingModel struct {
	model
	rules    meetingRules
	ranks    int
	launches []meetingLaunch
	entries  map[[4]int]*entry // by window, half, block, sender
	leaves   map[[3]int]int    // round, by window, block, sender
	links    map[[2]int]*link  // by sender, receiver
	begun    []int             // the last launch, by rank
	ended    [][]int           // ended blocks, by rank and launch
	aborted  []bool            // ranks
	gaveUp   map[[2]int]int    // round, by rank and block
	written  map[[2]int]int    // launch, by rank and block, that wrote its result over its data
	directly map[[2]int]bool   // by launch and block: the outcome for the first rank
	blocks   int               // blocks that haven't ended
}

func newMeetingModel(ranks int, launches []meetingLaunch, aborts bool, rules meetingRules) *meetingModel {
	m := &meetingModel{
		rules: rules, ranks: ranks, launches: launches, entries: map[[4]int]*entry{}, leaves: map[[3]int]int{},
		links: map[[2]int]*link{}, gaveUp: map[[2]int]int{}, written: map[[2]int]int{}, directly: map[[2]int]bool{},
		begun: make([]int, ranks), aborted: make([]bool, ranks),
	}
	most := 0
	for _, l := range launches {
		most = max(most, l.blocks)
	}
	for r := range ranks {
		m.ended = append(m.ended, make([]int, len(launches)))
		for b := range most {
			m.blocks++
			m.threads = append(m.threads, func(yield func(step) bool) {
				m.block(r, b, yield)
				m.blocks--
			})
		}
		for k := range m.others(r) {
			w := &link{}
			m.links[[2]int{r, k}] = w
			m.threads = append(m.threads, func(yield func(step) bool) {
				for m.blocks > 0 && yield(func() bool { return m.blocks == 0 || m.arrive(w) }) {
				}
			})
		}
		if aborts {
			m.threads = append(m.threads, func(yield func(step) bool) {
				yield(func() bool { m.aborted[r] = true; return true })
			})
		}
	}
	return m
}

func (m *meetingModel) others(r int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for k := 1; k < m.ranks && yield((r+k)%m.ranks); k++ {
		}
	}
}

func (m *meetingModel) arrive(w *link) bool {
	if len(w.stores) == 0 {
		return false
	}
	store := w.stores[0]
	w.stores, w.ended = w.stores[1:], w.ended+1
	store()
	return true
}

// store sends a store to each other rank.
func (m *meetingModel) store(r int, yield func(step) bool, at func(k int)) {
	for k := range m.others(r) {
		yield(func() bool {
			w := m.links[[2]int{r, k}]
			w.stores = append(w.stores, func() { at(k) })
			return true
		})
	}
}

func (m *meetingModel) entry(window, round, block, sender int) *entry {
	key := [4]int{window, round % m.rules.halves, block, sender}
	if m.entries[key] == nil {
		m.entries[key] = &entry{}
	}
	return m.entries[key]
}

func (m *meetingModel) enters(k, round, b, r int, here bool) {
	e := m.entry(k, round, b, r)
	if e.unread && m.gaveUp[[2]int{r, b}] == 0 { // otherwise it hasn't heard from all, and others give up, too
		m.fail("what rank %d says in round %d overwrites that of round %d, which rank %d has not read", r, round,
			e.round, k)
	}
	*e = entry{round, here, round > m.gaveUp[[2]int{k, b}]}
}

// visit is an access of rank r to the buffer of rank k.
func (m *meetingModel) visit(r, k, b, launch int) bool {
	switch {
	case m.begun[k] != launch || m.ended[k][launch] == m.launches[launch].blocks:
		return m.fail("rank %d is at the buffer of rank %d, whose launch %d has ended", r, k, launch)
	case m.written[[2]int{k, b}] == launch+1:
		return m.fail("rank %d reads the result of rank %d for its data in launch %d", r, k, launch)
	}
	return true
}

// block is a block of a rank, in all launches.
func (m *meetingModel) block(r, b int, yield func(step) bool) {
	round := 0
	for i, l := range m.launches {
		if b >= l.blocks {
			continue
		}
		round++
		yield(func() bool {
			if i > 0 && m.ended[r][i-1] < m.launches[i-1].blocks {
				return false
			}
			m.begun[r] = i
			return true
		})
		if !m.round(r, b, i, round, yield) {
			m.giveUp(r, b, round, yield)
		}
		yield(func() bool { m.ended[r][i]++; return true })
	}
}

// round returns false if the block must give up.
func (m *meetingModel) round(r, b, i, round int, yield func(step) bool) bool {
	l, goesOn := m.launches[i], true
	wait := func(here func() bool) bool {
		return goesOn && yield(func() bool {
			if here() {
				return true
			}
			goesOn = !m.aborted[r]
			return !goesOn
		}) && goesOn
	}
	m.store(r, yield, func(k int) { m.enters(k, round, b, r, l.apart != r) })
	directly := l.apart != r
	for k := range m.others(r) {
		e := m.entry(r, round, b, k)
		if !wait(func() bool {
			if e.round != round {
				return false
			}
			e.unread, directly = false, directly && e.here
			return true
		}) {
			return false
		}
		if !directly && !m.rules.all {
			break
		}
	}
	yield(func() bool {
		if first, ok := m.directly[[2]int{i, b}]; ok && first != directly {
			m.fail("rank %d meets directly in launch %d: %t, and another one doesn't", r, i, directly)
		}
		m.directly[[2]int{i, b}] = directly
		return true
	})
	leave := func(k int) { m.leaves[[3]int{k, b, r}] = round }
	if !directly {
		if m.rules.staged {
			m.store(r, yield, leave)
		}
		return true
	}
	write := func() bool { m.written[[2]int{r, b}] = i + 1; return true }
	for k := range m.others(r) {
		yield(func() bool { return m.visit(r, k, b, i) })
	}
	if l.whole && !m.rules.late {
		yield(write)
	}
	m.store(r, yield, leave)
	for k := range m.others(r) {
		if m.rules.leaves && !wait(func() bool { return m.leaves[[3]int{r, b, k}] == round }) {
			return false
		}
	}
	if l.whole {
		yield(write)
	}
	return true
}

func (m *meetingModel) giveUp(r, b, round int, yield func(step) bool) {
	yield(func() bool {
		m.gaveUp[[2]int{r, b}] = round
		for k := range m.others(r) {
			m.entry(r, round, b, k).unread = false
		}
		return true
	})
	m.store(r, yield, func(k int) {
		if m.rules.takesBack {
			*m.entry(k, round, b, r) = entry{}
		} else {
			m.leaves[[3]int{k, b, r}] = round
		}
	})
	for k := range m.others(r) { // a fence
		yield(m.links[[2]int{r, k}].sent())
	}
	for k := range m.others(r) {
		if m.rules.way {
			yield(m.links[[2]int{k, r}].sent())
		}
		if m.rules.stays {
			yield(func() bool { return m.entry(r, round, b, k).round != round || m.leaves[[3]int{r, b, k}] == round })
		}
	}
}

func drawLaunches(rng *rand.Rand, ranks, n int) []meetingLaunch {
	launches := make([]meetingLaunch, n)
	for i := range launches {
		launches[i] = meetingLaunch{1 + rng.IntN(3), max(-1, rng.IntN(2*ranks)-ranks), rng.IntN(2) == 0}
	}
	return launches
}

// TestMeetingModel checks that whatever the order of threads, and whenever ranks are aborted, ranks make the same
// decision, no rank accesses a buffer of an ended launch or reads a result as data, and all ranks end.
func TestMeetingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks, steps, rng := drawModel(t)
		launches := drawLaunches(rng, ranks, len(steps))
		aborts := rapid.Bool().Draw(t, "aborts")
		if err := newMeetingModel(ranks, launches, aborts, allMeetingRules()).run(rng); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range []struct {
		without string
		aborts  bool
		remove  func(*meetingRules)
	}{
		{"two halves", false, func(r *meetingRules) { r.halves = 1 }},
		{"waiting for all", false, func(r *meetingRules) { r.all = false }},
		{"waiting until others have left", false, func(r *meetingRules) { r.leaves = false }},
		{"writing results behind the reading", false, func(r *meetingRules) { r.late = false }},
		{"leaving where nobody goes", true, func(r *meetingRules) { r.staged = false }},
		{"taking back", true, func(r *meetingRules) { r.takesBack = false }},
		{"waiting for what is on its way", true, func(r *meetingRules) { r.way = false }},
		{"waiting for those at the buffer", true, func(r *meetingRules) { r.stays = false }},
	} {
		rules := allMeetingRules()
		c.remove(&rules)
		wrong(t, c.without, func(rng *rand.Rand) *model {
			ranks := 2 + rng.IntN(3)
			return &newMeetingModel(ranks, drawLaunches(rng, ranks, 12), c.aborts, rules).model
		})
	}
}

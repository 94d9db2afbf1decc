package cuda

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// A step of a model is atomic. It returns false, and has no effect, as long as its thread must wait.
type step func() bool

// model is a protocol without its data: threads that take steps, and the error of a step, if there is one.
type model struct {
	threads []iter.Seq[step]
	wrong   error
}

func (m *model) fail(format string, args ...any) bool {
	if m.wrong == nil {
		m.wrong = fmt.Errorf(format, args...)
	}
	return true
}

var errDeadlock = errors.New("all threads wait")

// run lets the threads take their steps in any order: sometimes one of any thread, sometimes many of one.
func (m *model) run(rng *rand.Rand) error {
	type running struct {
		step step
		next func() (step, bool)
	}
	var all []*running
	for _, thread := range m.threads {
		next, stop := iter.Pull(thread)
		defer stop()
		if first, ok := next(); ok {
			all = append(all, &running{first, next})
		}
	}
	for waiting := 0; len(all) > 0; {
		if waiting > 40*len(all) { // chosen at random: each has been asked, except in one of 10^17 cases
			return errDeadlock
		}
		i := rng.IntN(len(all))
		for range 1 + rng.IntN(30) {
			if !all[i].step() {
				waiting++
				break
			}
			waiting = 0
			next, ok := all[i].next()
			if !ok {
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
				break
			}
			all[i].step = next
		}
		if m.wrong != nil {
			return m.wrong
		}
	}
	return nil
}

// cell is where a packet or the data of a slot is stored. The threads don't know what data it holds.
type cell struct {
	flag   int
	of     int
	unread bool
}

// packetsRules are the rules of operation.h and shots.h, where a packet is a unit of either format. Flags repeat after
// wrap epochs, and are cleared every clean epochs. all: every rank hears from every other one in each operation;
// otherwise only from rank 0.
type packetsRules struct {
	halves, wrap, clean int
	all                 bool
}

func allPacketsRules() packetsRules { return packetsRules{halves: 2, wrap: 8, clean: 4, all: true} }

// packetsOperation is a one-shot, or a two-shot, in which a block that has a packet from all ranks sends as much to
// all.
type packetsOperation struct {
	packets int
	twoShot bool
}

// packetsModel models collectives in packets: each rank's blocks write to all others, and wait for as much from them.
type packetsModel struct {
	model
	rules         packetsRules
	ranks, blocks int
	operations    []packetsOperation
	most          int              // packets of one operation
	mailboxes     map[[4]int]*cell // by rank, half, sender, packet: results after parts
	ended         map[[2]int]int   // number of a rank's blocks that have done an operation
}

func newPacketsModel(ranks, blocks int, operations []packetsOperation, rules packetsRules) *packetsModel {
	m := &packetsModel{
		rules: rules, ranks: ranks, blocks: blocks, operations: operations,
		mailboxes: map[[4]int]*cell{}, ended: map[[2]int]int{},
	}
	for _, op := range operations {
		m.most = max(m.most, op.packets)
	}
	for r := range ranks {
		for b := range blocks {
			m.threads = append(m.threads, func(yield func(step) bool) { m.block(r, b, yield) })
		}
	}
	return m
}

func (m *packetsModel) at(rank, half, sender, packet int) *cell {
	key := [4]int{rank, half, sender, packet}
	c := m.mailboxes[key]
	if c == nil {
		c = &cell{flag: -1}
		m.mailboxes[key] = c
	}
	return c
}

func (m *packetsModel) block(r, b int, yield func(step) bool) {
	for i, op := range m.operations {
		epoch := i + 1
		half := epoch % m.rules.halves
		yield(func() bool { return i == 0 || m.ended[[2]int{r, i - 1}] == m.blocks })
		for p := b; p < 2*m.most*m.ranks && (epoch+1)%m.rules.clean < 2; p += m.blocks {
			yield(func() bool { return m.clear(r, 1-half, p%m.ranks, p/m.ranks) })
		}
		send := func(packet int) {
			for k := 1; k < m.ranks && (m.rules.all || r == 0); k++ {
				yield(func() bool { return m.send(m.at((r+k)%m.ranks, half, r, packet), epoch) })
			}
		}
		take := func(packet int) {
			for k := range m.ranks {
				if k != r && (m.rules.all || k == 0) {
					yield(func() bool { return m.take(m.at(r, half, k, packet), epoch) })
				}
			}
		}
		for p := b; p < op.packets; p += m.blocks {
			send(p)
		}
		for p := b; p < op.packets; p += m.blocks {
			take(p)
			if op.twoShot {
				send(m.most + p)
			}
		}
		for p := b; p < op.packets && op.twoShot; p += m.blocks {
			take(m.most + p)
		}
		yield(func() bool { m.ended[[2]int{r, i}]++; return true })
	}
}

func (m *packetsModel) clear(r, half, sender, packet int) bool {
	c := m.at(r, half, sender, packet)
	if c.unread {
		return m.fail("rank %d clears packet %d of rank %d, unread", r, packet, sender)
	}
	c.flag = -1
	return true
}

func (m *packetsModel) send(to *cell, epoch int) bool {
	if to.unread {
		m.fail("a packet of epoch %d is overwritten, unread, in epoch %d", to.of, epoch)
	}
	*to = cell{epoch % m.rules.wrap, epoch, true}
	return true
}

func (m *packetsModel) take(from *cell, epoch int) bool {
	if from.flag != epoch%m.rules.wrap {
		return false
	}
	if from.of != epoch {
		m.fail("a packet of epoch %d is taken for one of %d", from.of, epoch)
	}
	from.unread = false
	return true
}

// wrong tests that a model without one of its rules fails in some of its runs.
func wrong(t *testing.T, without string, of func(*rand.Rand) *model) {
	t.Helper()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		if err := of(rng).run(rng); err != nil {
			t.Logf("without %s: %v, in run %d", without, err, seed)
			return
		}
	}
	t.Errorf("without %s the model isn't found to be wrong", without)
}

func drawModel(t *rapid.T) (ranks int, steps []int, rng *rand.Rand) {
	ranks = rapid.IntRange(2, MaxRanks).Draw(t, "ranks")
	steps = rapid.SliceOfN(rapid.IntRange(1, 9), 1, 12).Draw(t, "operations")
	return ranks, steps, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
}

// drawOperations draws operations of at least one packet for each block.
func drawOperations(rng *rand.Rand, packets ...int) []packetsOperation {
	operations := make([]packetsOperation, len(packets))
	for i := range operations {
		operations[i] = packetsOperation{packets[i] + 2, rng.IntN(2) == 0}
	}
	return operations
}

// TestPacketsModel checks that whatever the order of threads, no packet is overwritten before it is read, no old packet
// is mistaken for a new one, and all ranks end.
func TestPacketsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks, packets, rng := drawModel(t)
		operations := drawOperations(rng, packets...)
		if err := newPacketsModel(ranks, 1+rng.IntN(3), operations, allPacketsRules()).run(rng); err != nil {
			t.Fatal(err)
		}
	})
	for without, remove := range map[string]func(*packetsRules){
		"two halves":       func(r *packetsRules) { r.halves = 1 },
		"clearing":         func(r *packetsRules) { r.clean = 1 << 20 },
		"hearing from all": func(r *packetsRules) { r.all = false },
	} {
		rules := allPacketsRules()
		remove(&rules)
		wrong(t, without, func(rng *rand.Rand) *model {
			operations := drawOperations(rng, 7, 1, 1, 1, 1, 1, 1, 1, 7) // the last one has the first one's flags
			return &newPacketsModel(2, 1, operations, rules).model
		})
	}
}

// fifo is a FIFO of fifosModel.
type fifo struct {
	slots          []cell
	credit         int
	sent, received int // positions, when no launch runs
}

// fifosRules are the rules of fifos.cu: how many slots a FIFO has, how many steps later a leader signals that one is
// done, and whether it waits for data and for room before the worker does a step.
type fifosRules struct {
	slots, behind int
	data, room    bool
}

func allFIFOsRules() fifosRules { return fifosRules{slots: slots, behind: 2, data: true, room: true} }

// fifosModel models reductions through FIFOs: on each rank, one block distributes, one reduces, and one collects, all
// in the same number of steps. In each block, a leader waits for other ranks and signals them, and a worker is one step
// behind.
func fifosModel(ranks int, launches []int, rules fifosRules) *model {
	slots := rules.slots
	m := &model{}
	const parts, shares = 0, 1
	fifos := make([][][2]fifo, ranks) // by sender, receiver, kind
	for from := range fifos {
		fifos[from] = make([][2]fifo, ranks)
		for to := range fifos[from] {
			for kind := range fifos[from][to] {
				fifos[from][to][kind].slots = make([]cell, slots)
			}
		}
	}
	ended := make([][]int, ranks) // number of threads that have done a launch
	for r := range ranks {
		ended[r] = make([]int, len(launches)+1)
		ended[r][0] = 6
	}
	for r := range ranks {
		for _, role := range []struct{ in, out int }{{-1, parts}, {parts, shares}, {shares, -1}} {
			arrived := [2]int{} // by leader and worker, at the barrier
			var in, out []*fifo
			for k := range ranks {
				if k != r && role.in >= 0 {
					in = append(in, &fifos[k][r][role.in])
				}
				if k != r && role.out >= 0 {
					out = append(out, &fifos[r][k][role.out])
				}
			}
			sync := func(yield func(step) bool, who int) {
				yield(func() bool { arrived[who]++; return true })
				mine := arrived[who] // it doesn't arrive again before it continues
				yield(func() bool { return arrived[1-who] >= mine })
			}
			leader := func(yield func(step) bool) {
				for launch, n := range launches {
					yield(func() bool { return ended[r][launch] == 6 })
					for i := range n + 2 {
						if told := i - rules.behind; told >= 0 && told < n {
							for _, f := range out {
								yield(func() bool {
									f.slots[(f.sent+told)%slots].flag = f.sent + told + 1
									return true
								})
							}
							for _, f := range in {
								yield(func() bool { f.credit = f.received + told + 1; return true })
							}
						}
						if i < n {
							for _, f := range when(rules.data, in) {
								yield(func() bool { return f.slots[(f.received+i)%slots].flag == f.received+i+1 })
							}
							for _, f := range when(rules.room, out) {
								yield(func() bool { return f.sent+i-f.credit < slots })
							}
						}
						sync(yield, 0)
					}
					yield(func() bool {
						for _, f := range out {
							f.sent += n
						}
						for _, f := range in {
							f.received += n
						}
						ended[r][launch+1]++
						return true
					})
				}
			}
			worker := func(yield func(step) bool) {
				for launch, n := range launches {
					yield(func() bool { return ended[r][launch] == 6 })
					for i := range n + 2 {
						if i >= 1 && i <= n {
							for _, f := range in {
								yield(func() bool {
									s := &f.slots[(f.received+i-1)%slots]
									if s.of != f.received+i {
										m.fail("rank %d reads step %d, not %d", r, s.of, f.received+i)
									}
									s.unread = false
									return true
								})
							}
							for _, f := range out {
								yield(func() bool {
									s := &f.slots[(f.sent+i-1)%slots]
									if s.unread {
										m.fail("rank %d overwrites step %d, unread", r, s.of)
									}
									s.of, s.unread = f.sent+i, true
									return true
								})
							}
						}
						sync(yield, 1)
					}
					yield(func() bool { ended[r][launch+1]++; return true })
				}
			}
			m.threads = append(m.threads, leader, worker)
		}
	}
	return m
}

func when(rule bool, of []*fifo) []*fifo {
	if rule {
		return of
	}
	return nil
}

// TestFIFOsModel checks that whatever the order of threads, no slot is overwritten before it is read, and all ranks
// end.
func TestFIFOsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks, launches, rng := drawModel(t)
		if err := fifosModel(ranks, launches, allFIFOsRules()).run(rng); err != nil {
			t.Fatal(err)
		}
	})
	for without, remove := range map[string]func(*fifosRules){
		"as many slots as a leader is ahead": func(r *fifosRules) { r.slots = 2 },
		"telling behind the worker":          func(r *fifosRules) { r.behind = 1 },
		"waiting for data":                   func(r *fifosRules) { r.data = false },
		"waiting for room":                   func(r *fifosRules) { r.room = false },
	} {
		rules := allFIFOsRules()
		remove(&rules)
		wrong(t, without, func(rng *rand.Rand) *model { return fifosModel(2+rng.IntN(3), []int{9, 5}, rules) })
	}
}

package jobsim

import (
	"container/heap"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Shape is how a job is laid out, and how fast it goes.
type Shape struct {
	Members int           // processes
	Ranks   int           // in each process
	Step    time.Duration // what a step takes, about; default 1s
	Jitter  float64       // by how much of its time a rank computes longer or shorter: 0 to 1; default 0.1
}

// stages is how many processes a pipeline has.
const stages = 4

// transfer is how long a collective takes once all have come.
const transfer = 5 * time.Millisecond

// call is one collective of the step, on the communicator at that place of rank.seats.
type call struct {
	comm int
	sig  tape.Signature
}

// The places of a rank's communicators, in the order of its table.
const (
	world = iota
	tensor
	pipeline
	data
	numComms
)

var commNames = [numComms]string{"world", "tensor", "pipeline", "data"}

// program is what each rank does in a step.
var program = [...]call{
	{tensor, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 20}},
	{pipeline, tape.Signature{Call: lifecycle.CallBroadcast, Peer: 0, Bytes: 1 << 18}},
	{data, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 24}},
	{world, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}},
}

// Model is the ranks of a job. It goes on by itself: each of its methods first does what happened until now. Times are
// CLOCK_MONOTONIC's in nanoseconds, by the bubble's clock.
type Model struct {
	mu     sync.Mutex
	shape  Shape
	now    func() int64
	rand   *rand.Rand
	ranks  []*rank
	member [][]*rank // by member
	due    events
	order  uint64
	epoch  uint64 // how often the job was started
	life   uint32 // communicators of a rank so far, for generations
	parted func(member int) (part int)
	held   []*comm // collectives to which all have come, and which the network holds up
}

// rank is one rank.
type rank struct {
	id, member int
	seats      [numComms]*seat
	pc         int // in program
	frozen     bool
	dead       bool
	due        bool // it would go on, if it were not frozen or asleep
	asleep     bool
	extra      int64 // it computes for so much longer than the others before each call
	swap       bool  // it makes the last two calls of the step in the other order
	odd        bool  // it makes another call of the world than the others, from now on
	ended      []ended
}

// seat is a rank's place in a communicator, with its slot of the in-flight table.
type seat struct {
	rank *rank
	comm *comm
	slot tape.Slot
	here bool // in the collective that the communicator is at
	done int64
}

// comm is a communicator.
type comm struct {
	seats []*seat
	came  int
	first int // all before it have come
	last  int // who came last
	alike bool
	sig   tape.Signature
}

// ended is an operation that ended, for the tape's events.
type ended struct {
	seat       *seat
	seq        uint64
	sig        tape.Signature
	start, end int64
	last       int // the rank that came last
	came       int64
}

// event is what happens at a time: a rank goes on, or a collective ends.
type event struct {
	at    int64
	order uint64 // of those at one time
	rank  *rank
	comm  *comm
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// NewModel makes a job that begins now. now is its clock.
func NewModel(seed uint64, s Shape, now func() int64) *Model {
	if s.Step == 0 {
		s.Step = time.Second
	}
	if s.Jitter == 0 {
		s.Jitter = 0.1
	}
	m := &Model{shape: s, now: now, rand: rand.New(rand.NewPCG(seed, 1)), parted: func(int) int { return 0 }}
	for i := range s.Members * s.Ranks {
		r := &rank{id: i, member: i / s.Ranks}
		m.ranks = append(m.ranks, r)
		if i%s.Ranks == 0 {
			m.member = append(m.member, nil)
		}
		m.member[r.member] = append(m.member[r.member], r)
	}
	m.start(now())
	return m
}

// start makes the communicators of the living ranks, and lets each begin with a step.
func (m *Model) start(now int64) {
	m.epoch++
	m.due, m.held = m.due[:0], nil
	type group struct{ kind, a, b int }
	comms := map[group]*comm{}
	place := 0 // of a member among the living
	for _, ranks := range m.member {
		if ranks[0].dead {
			continue
		}
		for local, r := range ranks {
			m.life += numComms
			for kind, g := range [numComms]group{
				{world, 0, 0}, {tensor, place, 0}, {pipeline, place / stages, local}, {data, place % stages, local},
			} {
				c := comms[g]
				if c == nil {
					c = &comm{}
					comms[g] = c
				}
				info := tape.CommInfo{ID: commID(m.epoch, g.kind, g.a, g.b), Name: commNames[kind], Rank: len(c.seats), Engine: "model"}
				if kind != world {
					info.Parent = commID(m.epoch, world, 0, 0)
				}
				s := &seat{rank: r, comm: c, slot: tape.Slot{
					CommInfo: info, Generation: m.life + uint32(kind), Root: m.life, State: lifecycle.StateReady, Wait: -1,
				}}
				c.seats = append(c.seats, s)
				r.seats[kind] = s
			}
			r.pc, r.due, r.asleep, r.swap, r.odd = 0, false, false, false, false
			m.compute(r, now)
		}
		place++
	}
	for _, c := range comms {
		for _, s := range c.seats {
			s.slot.Size = len(c.seats)
		}
	}
}

// commID is a communicator's, of the n-th start of the job.
func commID(epoch uint64, kind, a, b int) (id lifecycle.CommID) {
	binary.BigEndian.PutUint32(id[:], uint32(epoch))
	binary.BigEndian.PutUint32(id[4:], uint32(kind+1))
	binary.BigEndian.PutUint32(id[8:], uint32(a))
	binary.BigEndian.PutUint32(id[12:], uint32(b))
	return id
}

func (m *Model) push(at int64, r *rank, c *comm) {
	m.order++
	heap.Push(&m.due, event{at, m.order, r, c})
}

// compute lets a rank come to its next call when it has computed for it.
func (m *Model) compute(r *rank, now int64) {
	mean := float64(m.shape.Step) / float64(len(program))
	m.push(now+int64(mean*(1+m.shape.Jitter*(2*m.rand.Float64()-1)))+r.extra, r, nil)
}

// advance does what happened until now.
func (m *Model) advance() int64 {
	now := m.now()
	for len(m.due) > 0 && m.due[0].at <= now {
		e := heap.Pop(&m.due).(event)
		if e.comm != nil {
			m.end(e.comm, e.at)
		} else {
			m.goOn(e.rank, e.at)
		}
	}
	return now
}

// goOn lets a rank make its next call.
func (m *Model) goOn(r *rank, at int64) {
	switch {
	case r.dead:
		return
	case r.frozen, r.asleep:
		r.due = true
		return
	}
	next := program[r.pc]
	if n := len(program); r.swap && r.pc >= n-2 {
		next = program[2*n-3-r.pc]
	}
	s := r.seats[next.comm]
	if r.odd && next.comm == world {
		next.sig.Bytes *= 2
	}
	s.slot.Launched++
	s.slot.Seq, s.slot.Op, s.slot.OpStart, s.slot.Phase = s.slot.Launched, next.sig, at, tape.PhaseTransfer
	s.here = true
	c := s.comm
	if c.came == 0 {
		c.alike, c.sig, c.first = true, next.sig, 0
	}
	c.alike = c.alike && c.sig == next.sig
	c.came++
	c.last = s.slot.Rank
	if c.came == len(c.seats) && c.alike {
		m.push(at+int64(transfer), nil, c)
	}
}

// end ends a collective to which all have come, if the network lets it.
func (m *Model) end(c *comm, at int64) {
	part := m.parted(c.seats[0].rank.member)
	for _, s := range c.seats {
		if m.parted(s.rank.member) != part {
			m.held = append(m.held, c)
			return
		}
	}
	came := c.seats[c.last].slot.OpStart
	c.came = 0
	for _, s := range c.seats {
		s.here = false
		if s.rank.dead {
			continue
		}
		if s.rank.frozen { // it will see that when it runs again
			s.done = at
			continue
		}
		m.finish(s, at, c.last, came)
	}
}

// finish lets a rank see that its operation has ended.
func (m *Model) finish(s *seat, at int64, last int, came int64) {
	s.slot.Completed, s.slot.LastEnd, s.slot.Phase = s.slot.Launched, at, tape.PhaseNone
	r := s.rank
	r.ended = append(r.ended, ended{s, s.slot.Seq, s.slot.Op, s.slot.OpStart, at, last, came})
	r.pc = (r.pc + 1) % len(program)
	m.compute(r, at)
}

// waitsFor is the first rank that has not come to the collective that s is in; -1 if all have.
func (s *seat) waitsFor() int32 {
	c := s.comm
	for c.first < len(c.seats) && c.seats[c.first].here {
		c.first++
	}
	if !s.here || c.first == len(c.seats) {
		return -1
	}
	return int32(c.first)
}

package meshed

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// stages is how many processes a pipeline has.
const stages = 4

// transfer is the time from the entry of the last rank to the end of a collective.
const transfer = 5 * time.Millisecond

// commNames are the communicators of a rank, in the order of use in a step.
var commNames = [...]string{"tensor", "pipeline", "data", world}

const world = "world"

// signatures are the calls on them.
var signatures = [len(commNames)]tape.Signature{
	{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 20},
	{Call: lifecycle.CallBroadcast, Peer: 0, Bytes: 1 << 18},
	{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 24},
	{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8},
}

// Model simulates the ranks of a job on the bubble's clock. Each method first brings it up to now.
type Model struct {
	mu     sync.Mutex
	config Config
	rand   *rand.Rand
	job    *jobsim.Job
	habits []Habit        // by rank
	events [][]tape.Event // by member: unread events of its tape
}

// Habit is how a rank differs from the others.
type Habit struct {
	Extra time.Duration // computing time before each call, in addition
	Swap  bool          // it calls the world's all-reduce before the data-parallel one
	Odd   bool          // its all-reduce of the world has twice the size

	asleep bool
	awake  *jobsim.Gate
}

// newModel makes a job that begins now.
func newModel(c Config) *Model {
	c.Step, c.Jitter = cmp.Or(c.Step, time.Second), cmp.Or(c.Jitter, 0.1)
	m := &Model{config: c, rand: rand.New(rand.NewPCG(c.Seed, 1))}
	m.job = jobsim.New(jobsim.Config{
		Processes: c.Members, Hosts: c.Machines, Latency: transfer, OnError: jobsim.Stay, Blind: true, Start: clock(),
	}, c.Ranks)
	m.habits, m.events = make([]Habit, len(m.job.Ranks)), make([][]tape.Event, c.Members)
	for i, p := range m.job.Processes {
		p.Observe = func(ev *tape.Event) { m.events[i] = append(m.events[i], *ev) }
	}
	m.start()
	return m
}

// start makes the communicators of the living ranks, and starts their programs: the world, a tensor-parallel
// group of the ranks of each process, pipelines of four processes, and data-parallel groups of the processes at the
// same place of their pipelines.
func (m *Model) start() {
	m.job.Reset()
	var all []int
	groups := map[[3]int][]int{} // by kind and the two indices of the group
	place := 0                   // of a process among the living
	for _, p := range m.job.Processes {
		if p.State == jobsim.Dead {
			continue
		}
		for local, r := range p.Ranks {
			all = append(all, r.Job)
			for _, key := range [][3]int{{0, place, 0}, {1, place / stages, local}, {2, place % stages, local}} {
				groups[key] = append(groups[key], r.Job)
			}
			m.habits[r.Job] = Habit{awake: &jobsim.Gate{}}
		}
		place++
	}
	m.job.Comm(world, "", all)
	for kind := range 3 {
		for a := range place {
			for b := range m.config.Ranks {
				if ranks := groups[[3]int{kind, a, b}]; len(ranks) > 0 {
					m.job.Comm(commNames[kind], world, ranks)
				}
			}
		}
	}
	for _, r := range all {
		m.job.Ranks[r].Run(m.program(r))
	}
}

// program computes and makes the next call, for ever.
func (m *Model) program(rank int) jobsim.Program {
	h, call, computed := &m.habits[rank], 0, false
	return func() jobsim.Instruction {
		if !computed {
			computed = true
			mean := float64(m.config.Step) / float64(len(commNames))
			return jobsim.Compute{For: time.Duration(mean*(1+m.config.Jitter*(2*m.rand.Float64()-1))) + h.Extra}
		}
		if h.asleep {
			return jobsim.Pass{Gate: h.awake}
		}
		at := call
		if h.Swap && call >= len(commNames)-2 {
			at = 2*len(commNames) - 3 - call
		}
		sig := signatures[at]
		if h.Odd && commNames[at] == world {
			sig.Bytes *= 2
		}
		call, computed = (call+1)%len(commNames), false
		return jobsim.Call{Comm: commNames[at], Sig: sig}
	}
}

// do brings the model up to now, and calls f.
func (m *Model) do(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.job.Run(clock())
	f()
}

// Oldest is the start of the oldest operation in flight on a running process; 0: none.
func (m *Model) Oldest() (oldest int64) {
	m.do(func() {
		for _, p := range m.job.Processes {
			if p.State != jobsim.Running {
				continue
			}
			for _, s := range p.Slots(nil) {
				if s.Launched != s.Completed && (oldest == 0 || s.OpStart < oldest) {
					oldest = s.OpStart
				}
			}
		}
	})
	return oldest
}

// Sleep keeps a rank from its next call until Wake.
func (m *Model) Sleep(id int) { m.do(func() { m.habits[id].asleep = true }) }

// Wake wakes a sleeping rank.
func (m *Model) Wake(id int) {
	m.do(func() {
		m.habits[id].asleep = false
		m.habits[id].awake.Open()
	})
}

// Change changes the habit of a rank.
func (m *Model) Change(id int, how func(*Habit)) { m.do(func() { how(&m.habits[id]) }) }

// Restart ends all communicators, and starts the living ranks again.
func (m *Model) Restart() { m.do(m.start) }

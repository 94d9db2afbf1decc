package view

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Comm is a communicator, merged from the reports of its ranks.
type Comm struct {
	Job   string           `json:"job,omitempty"`
	ID    lifecycle.CommID `json:"id"`
	Name  string           `json:"name"`
	Size  int              `json:"size"`
	Known []int            `json:"known"` // its ranks that report the communicator
	// JobRanks are the same ranks as ranks of the job, where they differ: in a split or shrunk world.
	JobRanks []int `json:"job_ranks,omitempty"`
	// Stale are the ranks of Known that no longer answer, and StaleAge is the age of their oldest report.
	Stale    []int   `json:"stale,omitempty"`
	StaleAge float64 `json:"stale_age_seconds,omitempty"`
	States   []State `json:"states"`             // the ranks of Known by state
	Captured uint64  `json:"captured,omitempty"` // the most operations that any rank captured in CUDA graphs
	Busy     []Op    `json:"busy,omitempty"`     // operations in flight, the oldest first
	Behind   []int   `json:"behind,omitempty"`   // ranks of Known that haven't begun the oldest collective

	begun map[int]uint64 // the last collective that each rank began
	job   map[int]int    // the job's rank of each rank; -1: unknown
	whole bool           // it is the world: its ranks are the job's ranks
}

// State is a state of a communicator's ranks.
type State struct {
	State string `json:"state"`
	Ranks []int  `json:"ranks"`
}

// Op is an operation in flight on ranks of a communicator.
type Op struct {
	Call     string  `json:"call"`
	Seq      uint64  `json:"seq"`
	Bytes    uint64  `json:"bytes"`
	Age      float64 `json:"age_seconds"` // the longest on any rank
	Ranks    []int   `json:"ranks"`
	WaitsFor []int   `json:"waits_for,omitempty"`
}

// idle tells whether all ranks are ready and none is in an operation.
func (c *Comm) idle() bool {
	return len(c.Busy) == 0 && len(c.States) == 1 && c.States[0].State == lifecycle.StateReady.String()
}

// commSet merges the communicators of a job.
type commSet struct {
	size  int // of the job
	comms map[lifecycle.CommID]*Comm
}

// add adds the report of a rank of the job; jobRank is -1 if the rank is unknown. The report is age seconds old. Unless
// it is stale, its operation is still running.
func (g *commSet) add(part *health.Comm, jobRank int, age float64, stale bool) {
	rank := part.Rank
	if part.Size == 0 { // its init is running, and it has no ranks yet
		rank = jobRank
	}
	c := g.comms[part.ID]
	if c == nil {
		c = &Comm{Job: part.Job, ID: part.ID, Name: part.Name, begun: map[int]uint64{}, job: map[int]int{}}
		g.comms[part.ID] = c
	}
	if slices.Contains(c.Known, rank) {
		return
	}
	c.Size = max(c.Size, part.Size)
	c.whole = c.whole || part.Parent.IsZero() && part.Size == g.size
	c.Known = append(c.Known, rank)
	if stale {
		c.Stale, c.StaleAge = append(c.Stale, rank), max(c.StaleAge, age)
	}
	c.begun[rank], c.job[rank] = part.Begun, jobRank
	c.Captured = max(c.Captured, part.Captured)
	i := slices.IndexFunc(c.States, func(s State) bool { return s.State == part.State })
	if i < 0 {
		i = len(c.States)
		c.States = append(c.States, State{State: part.State})
	}
	c.States[i].Ranks = append(c.States[i].Ranks, rank)
	in := part.InFlight
	if in == nil {
		return
	}
	i = slices.IndexFunc(c.Busy, func(o Op) bool { return o.Call == in.Call && o.Seq == in.Seq })
	if i < 0 {
		i = len(c.Busy)
		c.Busy = append(c.Busy, Op{Call: in.Call, Seq: in.Seq, Bytes: in.Bytes})
	}
	o := &c.Busy[i]
	o.Age = max(o.Age, in.Age+age)
	o.Ranks = append(o.Ranks, rank)
	if in.WaitRank != nil && *in.WaitRank >= 0 && !slices.Contains(o.WaitsFor, int(*in.WaitRank)) {
		o.WaitsFor = append(o.WaitsFor, int(*in.WaitRank))
	}
}

// list returns the communicators that are not idle, the oldest operation first, and then the others.
func (g *commSet) list() []Comm {
	list := make([]Comm, 0, len(g.comms))
	for _, c := range g.comms {
		c.finish()
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Comm) int {
		return cmp.Or(order(a.idle())-order(b.idle()), cmp.Compare(b.age(), a.age()), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID.String(), b.ID.String()))
	})
	return list
}

// finish sorts the reports, and derives Behind and JobRanks from them.
func (c *Comm) finish() {
	slices.Sort(c.Known)
	slices.Sort(c.Stale)
	for i := range c.States {
		slices.Sort(c.States[i].Ranks)
	}
	slices.SortFunc(c.States, func(a, b State) int {
		return cmp.Or(cmp.Compare(len(b.Ranks), len(a.Ranks)), cmp.Compare(a.State, b.State))
	})
	slices.SortFunc(c.Busy, func(a, b Op) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.Seq, b.Seq)) })
	for i := range c.Busy {
		slices.Sort(c.Busy[i].Ranks)
		slices.Sort(c.Busy[i].WaitsFor)
		for _, rank := range c.Busy[i].WaitsFor {
			if _, known := c.job[rank]; !known && c.whole {
				c.job[rank] = rank
			}
		}
	}
	if len(c.Busy) > 0 && !slices.Contains(pairs, c.Busy[0].Call) {
		for _, rank := range c.Known {
			if c.begun[rank] < c.Busy[0].Seq {
				c.Behind = append(c.Behind, rank)
			}
		}
	}
	if numbers := jobRanks(c.Known, c.job); !slices.Equal(numbers, c.Known) {
		c.JobRanks = numbers
	}
}

func (c *Comm) ranks(of []int) string { return RankNames(of, NameOf(c.Name, c.ID), c.job) }

// NameOf is a communicator's name or, if it has none, the beginning of its id.
func NameOf(name string, id lifecycle.CommID) string { return cmp.Or(name, id.Short()) }

// RankNames names ranks of a communicator by their ranks in the job, followed by their ranks in the communicator in
// brackets where these differ: "ranks 4 and 6 (0 and 1 on tp)". It is "rank 1 of tp" if the job's rank of one is
// unknown.
func RankNames(ranks []int, comm string, job map[int]int) string {
	numbers := jobRanks(ranks, job)
	switch {
	case numbers == nil:
		return words.Ranks(ranks) + " of " + comm
	case slices.Equal(numbers, ranks):
		return words.Ranks(ranks)
	default:
		return fmt.Sprintf("%s (%s on %s)", words.Ranks(numbers), words.Numbers(ranks), comm)
	}
}

// jobRanks translates a communicator's ranks to the job's; nil if one is unknown. A job rank that several ranks share,
// as the ranks of one process do, counts as unknown.
func jobRanks(ranks []int, job map[int]int) []int {
	times := map[int]int{}
	for _, number := range job {
		times[number]++
	}
	numbers := make([]int, len(ranks))
	for i, rank := range ranks {
		number, known := job[rank]
		if !known || number < 0 || times[number] > 1 {
			return nil
		}
		numbers[i] = number
	}
	return numbers
}

func (c *Comm) age() float64 {
	if len(c.Busy) == 0 {
		return 0
	}
	return c.Busy[0].Age
}

// order sorts true after false.
func order(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// acts are calls that aren't operations, but contain one by which the ranks agree. That operation's number isn't the
// one by which verdicts, logs and traces know the act.
var acts = []string{
	lifecycle.CallSplit.String(), lifecycle.CallShrink.String(), lifecycle.CallGrow.String(),
	lifecycle.CallFinalize.String(), lifecycle.CallGroupEnd.String(),
}

// pairs are the calls between two ranks. A rank that doesn't make them isn't behind.
var pairs = []string{lifecycle.CallSend.String(), lifecycle.CallRecv.String(), lifecycle.CallSendRecv.String()}

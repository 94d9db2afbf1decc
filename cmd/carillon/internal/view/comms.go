package view

import (
	"cmp"
	"slices"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
)

// Comm is a communicator, put together from those of its ranks that tell of it.
type Comm struct {
	ID    lifecycle.CommID `json:"id"`
	Name  string           `json:"name"`
	Size  int              `json:"size"`
	Known []int            `json:"known"` // its ranks that tell of it
	// JobRanks are the same ones as ranks of the job, if they aren't the same numbers there: of a split or shrunk world.
	JobRanks []int `json:"job_ranks,omitempty"`
	// Stale are those of Known that can't be asked any more, and StaleAge how old the oldest is of what they told.
	Stale    []int   `json:"stale,omitempty"`
	StaleAge float64 `json:"stale_age_seconds,omitempty"`
	States   []State `json:"states"`           // which of them are in which state
	Busy     []Op    `json:"busy,omitempty"`   // what they are in, the oldest first
	Behind   []int   `json:"behind,omitempty"` // of those, which haven't begun the oldest collective
}

// State is a state of a communicator's ranks.
type State struct {
	State string `json:"state"`
	Ranks []int  `json:"ranks"`
}

// Op is an operation that ranks of a communicator are in.
type Op struct {
	Call     string  `json:"call"`
	Seq      uint64  `json:"seq"`
	Bytes    uint64  `json:"bytes"`
	Age      float64 `json:"age_seconds"` // of the rank that is in it longest
	Ranks    []int   `json:"ranks"`
	WaitsFor []int   `json:"waits_for,omitempty"`
}

// Idle tells whether there is nothing to say of it: all ranks are ready, and none is in an operation.
func (c *Comm) Idle() bool {
	return len(c.Busy) == 0 && len(c.States) == 1 && c.States[0].State == lifecycle.StateReady.String()
}

// gathering gathers communicators from their ranks.
type gathering struct {
	comms    map[lifecycle.CommID]*Comm
	launched map[lifecycle.CommID]map[int]uint64
	jobRanks map[lifecycle.CommID]map[int]int
}

func newGathering() *gathering {
	return &gathering{
		map[lifecycle.CommID]*Comm{},
		map[lifecycle.CommID]map[int]uint64{},
		map[lifecycle.CommID]map[int]int{},
	}
}

// add takes the part of a rank of the job, -1 if that isn't known; later says for how many seconds what it tells has
// gone on since, and stale that nobody knows whether it has.
func (g *gathering) add(part *health.Comm, jobRank int, later float64, stale bool) {
	c := g.comms[part.ID]
	if c == nil {
		c = &Comm{ID: part.ID, Name: part.Name, Size: part.Size}
		g.comms[part.ID], g.launched[part.ID], g.jobRanks[part.ID] = c, map[int]uint64{}, map[int]int{}
	}
	if slices.Contains(c.Known, part.Rank) {
		return
	}
	c.Known = append(c.Known, part.Rank)
	if stale {
		c.Stale, c.StaleAge = append(c.Stale, part.Rank), max(c.StaleAge, later)
	}
	g.launched[part.ID][part.Rank], g.jobRanks[part.ID][part.Rank] = part.Launched, jobRank
	i := slices.IndexFunc(c.States, func(s State) bool { return s.State == part.State })
	if i < 0 {
		i = len(c.States)
		c.States = append(c.States, State{State: part.State})
	}
	c.States[i].Ranks = append(c.States[i].Ranks, part.Rank)
	if part.InFlight == nil {
		return
	}
	in := part.InFlight
	i = slices.IndexFunc(c.Busy, func(o Op) bool { return o.Call == in.Call && o.Seq == in.Seq })
	if i < 0 {
		i = len(c.Busy)
		c.Busy = append(c.Busy, Op{Call: in.Call, Seq: in.Seq, Bytes: in.Bytes})
	}
	o := &c.Busy[i]
	o.Age = max(o.Age, in.Age+later)
	o.Ranks = append(o.Ranks, part.Rank)
	if in.WaitRank != nil && *in.WaitRank >= 0 && !slices.Contains(o.WaitsFor, int(*in.WaitRank)) {
		o.WaitsFor = append(o.WaitsFor, int(*in.WaitRank))
	}
}

// list is all of them: those that have something to tell first, by the age of what they are in.
func (g *gathering) list() []Comm {
	list := make([]Comm, 0, len(g.comms))
	for id, c := range g.comms {
		slices.Sort(c.Known)
		slices.Sort(c.Stale)
		c.JobRanks = otherNumbers(c.Known, g.jobRanks[id])
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
		}
		if len(c.Busy) > 0 && collective(c.Busy[0].Call) {
			for rank, launched := range g.launched[id] {
				if launched < c.Busy[0].Seq {
					c.Behind = append(c.Behind, rank)
				}
			}
			slices.Sort(c.Behind)
		}
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Comm) int {
		return cmp.Or(
			order(a.Idle(), b.Idle()), cmp.Compare(b.age(), a.age()), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID.String(),
				b.ID.String()),
		)
	})
	return list
}

// otherNumbers are the ranks in the job of a communicator's ranks; nil if they are the same, or one isn't known.
func otherNumbers(known []int, job map[int]int) []int {
	numbers, other := make([]int, len(known)), false
	for i, rank := range known {
		numbers[i] = job[rank]
		if numbers[i] < 0 {
			return nil
		}
		other = other || numbers[i] != rank
	}
	if !other {
		return nil
	}
	return numbers
}

func (c *Comm) age() float64 {
	if len(c.Busy) == 0 {
		return 0
	}
	return c.Busy[0].Age
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// collective tells whether all ranks make the call, so that a rank that hasn't is behind.
func collective(call string) bool {
	switch call {
	case lifecycle.CallSend.String(), lifecycle.CallRecv.String(), lifecycle.CallSendRecv.String():
		return false
	}
	return true
}

package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Held is an operation that ended well and took far longer than its like does: a hang that is over.
type Held struct {
	Comm   string           `json:"comm"`
	CommID lifecycle.CommID `json:"comm_id"`
	Call   string           `json:"call"`
	Seq    uint64           `json:"seq"`
	// Ranks (in the job) were in it so long, For at most, from From until Until.
	Ranks []int         `json:"ranks"`
	From  time.Time     `json:"from"`
	Until time.Time     `json:"until"`
	For   time.Duration `json:"for_ns"`
	// Late are the ranks (in the job) that they waited for, as far as that is known.
	Late []int `json:"late,omitempty"`
	// Follows says that those were held up themselves meanwhile, in another operation.
	Follows bool `json:"follows,omitempty"`
	// Text is all of it in a sentence.
	Text string `json:"text"`
}

const (
	// heldTime is the least that holds anything up, and heldTimes how many times longer than its like an operation must take. They are those
	// of a job that runs.
	heldTime  = stall.DefaultSlow
	heldTimes = 8
	// heldPerMember bounds what is kept while tapes are read, MaxHeld what a report tells; the longest are.
	heldPerMember = 64
	// MaxHeld is how many operations a Report has that were held up.
	MaxHeld = 16
)

// lengthy is an operation that ended well, and in which one rank was long.
type lengthy struct {
	seq        uint64
	sig        tape.Signature
	start, end int64
	whom       int32 // for whom it waited longest, in the communicator; -1: nobody
}

func (l *lengthy) time() time.Duration { return time.Duration(l.end - l.start) }

// linger keeps an operation that ended, if it took long; whom is for whom it waited longest.
func (m *member) linger(r *tape.OpRecord, whom int32) {
	if r.Code != lifecycle.CodeOK || r.Start <= 0 || r.Time-r.Start < int64(heldTime) || !together(r.Signature.Call) {
		return
	}
	m.lengthy = append(m.lengthy, lengthy{r.Seq, r.Signature, r.Start, r.Time, whom})
	if len(m.lengthy) == 2*heldPerMember {
		slices.SortStableFunc(m.lengthy, func(a, b lengthy) int { return cmp.Compare(b.time(), a.time()) })
		m.lengthy = m.lengthy[:heldPerMember]
	}
}

// like is what operations have in common that take about as long.
type like struct {
	comm  string
	call  lifecycle.Call
	class uint8
}

// usual is what operations that took nobody long took, by their like.
func (j *job) usual(all []*done) map[like]time.Duration {
	type sum struct {
		n    uint64
		time time.Duration
	}
	sums := make(map[like]sum)
	for _, d := range all {
		key := like{d.name, d.call, d.class}
		s := sums[key]
		sums[key] = sum{s.n + d.sum.Count(), addTimes(s.time, d.sum.Time)}
	}
	for _, c := range j.comms {
		for _, m := range c.members {
			for i := range m.lengthy {
				key := likeOf(m, &m.lengthy[i])
				if s := sums[key]; s.n > 0 {
					sums[key] = sum{s.n - 1, max(s.time-m.lengthy[i].time(), 0)}
				}
			}
		}
	}
	means := make(map[like]time.Duration)
	for key, s := range sums {
		if s.n > 0 {
			means[key] = s.time / time.Duration(min(s.n, maxCount))
		}
	}
	return means
}

func likeOf(m *member, l *lengthy) like {
	return like{m.info.Name, l.sig.Call, tape.SizeClass(l.sig.Bytes)}
}

// held finds the operations that were held up, the longest first; those that others held up come behind.
func (j *job) held(all []*done) []Held {
	usual := j.usual(all)
	var found []Held
	for _, c := range j.comms {
		var order []uint64
		bySeq := make(map[uint64]map[int32]*lengthy) // and by rank
		for _, m := range c.members {
			for i := range m.lengthy {
				l := &m.lengthy[i]
				if m.info.Rank < 0 || l.time() < heldTimes*usual[likeOf(m, l)] {
					continue
				}
				if bySeq[l.seq] == nil {
					bySeq[l.seq] = make(map[int32]*lengthy)
					order = append(order, l.seq)
				}
				bySeq[l.seq][int32(m.info.Rank)] = l
			}
		}
		for _, seq := range order {
			found = append(found, c.heldUp(seq, bySeq[seq]))
		}
	}
	for i := range found {
		found[i].Follows = len(found[i].Late) > 0 && !slices.ContainsFunc(found[i].Late, func(rank int) bool { return !heldMeanwhile(rank, &found[i], found) })
	}
	slices.SortStableFunc(found, func(a, b Held) int {
		switch {
		case a.Follows != b.Follows && a.Follows:
			return 1
		case a.Follows != b.Follows:
			return -1
		default:
			return cmp.Or(cmp.Compare(b.For, a.For), a.From.Compare(b.From))
		}
	})
	return found[:min(len(found), MaxHeld)]
}

// heldMeanwhile tells whether a rank was held up in another operation for at least half of the time in which h was.
func heldMeanwhile(rank int, h *Held, all []Held) bool {
	return slices.ContainsFunc(all, func(o Held) bool {
		from, until := h.From, h.Until
		if o.From.After(from) {
			from = o.From
		}
		if o.Until.Before(until) {
			until = o.Until
		}
		return (o.CommID != h.CommID || o.Seq != h.Seq) && slices.Contains(o.Ranks, rank) && 2*until.Sub(from) >= h.Until.Sub(h.From)
	})
}

// heldUp is an operation in which some ranks were long.
func (c *comm) heldUp(seq uint64, in map[int32]*lengthy) Held {
	h := Held{Comm: c.info.Name, CommID: c.info.ID, Seq: seq}
	late := make(map[int]bool)
	for rank, l := range in {
		m := c.byRank[rank]
		if m == nil {
			continue
		}
		h.Call = l.sig.Call.String()
		h.Ranks = append(h.Ranks, m.jobRank())
		h.For = max(h.For, l.time())
		if from := m.proc.at(l.start); h.From.IsZero() || from.Before(h.From) {
			h.From = from
		}
		if until := m.proc.at(l.end); until.After(h.Until) {
			h.Until = until
		}
		if last := c.byRank[whomInTheEnd(l.whom, in)]; last != nil {
			late[last.jobRank()] = true
		}
	}
	slices.Sort(h.Ranks)
	for rank := range late {
		h.Late = append(h.Late, rank)
	}
	slices.Sort(h.Late)
	h.Text = h.sentence()
	return h
}

// whomInTheEnd follows who waited for whom, from a rank on, to one that was not in the operation for long; -1 if there is none.
func whomInTheEnd(rank int32, in map[int32]*lengthy) int32 {
	for range in {
		l := in[rank]
		if l == nil {
			return rank
		}
		rank = l.whom
	}
	return -1
}

func (h *Held) sentence() string {
	text := fmt.Sprintf("The job was held up for %s: %s %s in %s of %s from %s to %s", span(int64(h.For)), Ranks(h.Ranks),
		plural(len(h.Ranks), "was", "were"), numbered(h.Call, h.Seq), cmp.Or(clean(h.Comm), h.CommID.Short()), clockTime(h.From), clockTime(h.Until))
	if len(h.Late) > 0 {
		text += fmt.Sprintf(", and waited for %s", Ranks(h.Late))
	}
	return text + "."
}

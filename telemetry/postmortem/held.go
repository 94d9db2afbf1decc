package postmortem

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Held is an operation that ended well and took far longer than its like does: a hang that is over.
type Held struct {
	Comm   string           `json:"comm"`
	CommID lifecycle.CommID `json:"comm_id"`
	Call   string           `json:"call"`
	Seq    uint64           `json:"seq"`
	// Ranks (in the job) were in it for For, or half of that at least, from From until Until.
	Ranks []int         `json:"ranks"`
	From  time.Time     `json:"from"`
	Until time.Time     `json:"until"`
	For   time.Duration `json:"for_ns"`
	// Late are the ranks (in the job) that they waited for, as far as that is known.
	Late []int `json:"late,omitempty"`
	// Follows says that another one held it up: in that, Late or all of Ranks were meanwhile.
	Follows bool `json:"follows,omitempty"`
	// Text is all of it in a sentence or two.
	Text string `json:"text"`

	size   int              // of the communicator
	spans  map[int]interval // of Ranks
	behind int              // how many others, which it held up, Text tells of
}

// interval is a time on the one clock.
type interval struct{ from, until time.Time }

func (i interval) length() time.Duration { return i.until.Sub(i.from) }

// covers tells whether i has at least half of o.
func (i interval) covers(o interval) bool {
	from, until := i.from, i.until
	if o.from.After(from) {
		from = o.from
	}
	if o.until.Before(until) {
		until = o.until
	}
	return 2*until.Sub(from) >= o.length()
}

const (
	// heldTime is the least that holds anything up, and heldTimes how many times longer than its like an operation must take. They are those
	// of a job that runs.
	heldTime  = stall.DefaultSlow
	heldTimes = 8
	// heldPerMember bounds what is kept while tapes are read, maxHeld what is compared, MaxHeld what a report tells; the longest are.
	heldPerMember = 64
	maxHeld       = 512
	// MaxHeld is how many operations a Report has that were held up.
	MaxHeld = 16
)

// lengthy is an operation in which one rank was long.
type lengthy struct {
	seq        uint64
	sig        tape.Signature
	code       lifecycle.Code
	start, end int64
	whom       int32 // for whom it waited longest at a time, in the communicator; -1: nobody
	waited     int64 // for how long
}

func (l *lengthy) time() time.Duration { return time.Duration(l.end - l.start) }

// linger keeps an operation that ended, if it took long; o is what is known of it from before, nil for nothing. One that was queued behind
// another one for most of its time is no further hold.
func (m *member) linger(r *tape.OpRecord, o *ongoing) {
	if r.Start <= 0 || r.Start > r.Time || r.Time-r.Start < int64(heldTime) || !together(r.Signature.Call) {
		return
	}
	l := lengthy{seq: r.Seq, sig: r.Signature, code: r.Code, start: r.Start, end: r.Time, whom: -1}
	if o != nil {
		l.whom, l.waited = o.whom, o.waited
	}
	if n := len(m.lengthy); n > 0 && l.code == lifecycle.CodeOK && 2*(m.behind-l.start) >= l.end-l.start {
		return
	}
	m.behind = l.end
	m.lengthy = append(m.lengthy, l)
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

// usual is what half of the operations of a kind took at most, where there are more than the ranks' first two: what else is long then
// is not like the others.
func usual(all []*done) map[like]time.Duration {
	sums := make(map[like]*tape.Tally)
	parts := make(map[like]int)
	for _, d := range all {
		key := like{d.name, d.call, d.class}
		if sums[key] == nil {
			sums[key] = &tape.Tally{}
		}
		addTally(sums[key], &d.sum)
		parts[key] += len(d.parts)
	}
	medians := make(map[like]time.Duration)
	for key, sum := range sums {
		if sum.Count() <= uint64(2*parts[key]) {
			continue
		}
		if medians[key] = quantile(sum, 0.5); medians[key] < 0 {
			medians[key] = math.MaxInt64 / heldTimes // longer than any bound
		}
	}
	return medians
}

// held finds the operations that were held up, the longest first; those that others held up come behind.
func (j *job) held(all []*done) []Held {
	medians := usual(all)
	var found []Held
	for _, c := range j.comms {
		for _, in := range c.lengthy(func(l *lengthy) bool {
			return l.code == lifecycle.CodeOK && l.time() >= heldTimes*medians[c.like(&l.sig)]
		}) {
			h, sig := c.heldUp(in)
			if _, known := medians[c.like(sig)]; known || len(h.Late) > 0 { // or it may always take so long
				found = append(found, h)
			}
		}
	}
	longest := func(a, b Held) int { return cmp.Or(cmp.Compare(b.For, a.For), a.From.Compare(b.From)) }
	slices.SortStableFunc(found, longest)
	found = found[:min(len(found), maxHeld)]
	behind := make([][]*Held, len(found)) // those that each held up
	for i := range found {
		if cause := heldBy(&found[i], found); cause >= 0 {
			found[i].Follows = true
			behind[cause] = append(behind[cause], &found[i])
		}
	}
	for i := range found {
		if found[i].Follows {
			behind[i] = nil
		}
		found[i].tell(behind[i])
	}
	slices.SortStableFunc(found, func(a, b Held) int {
		switch {
		case a.Follows == b.Follows:
			return longest(a, b)
		case a.Follows:
			return 1
		default:
			return -1
		}
	})
	return found[:min(len(found), MaxHeld)]
}

// heldBy finds the operation that held another one up: all of those for whom its ranks waited, or, where those aren't known, all of its ranks,
// were in it meanwhile. -1: there is none.
func heldBy(h *Held, all []Held) int {
	return slices.IndexFunc(all, func(o Held) bool {
		if o.CommID == h.CommID && o.Seq == h.Seq {
			return false
		}
		if len(h.Late) == 0 {
			return o.CommID == h.CommID && o.Seq < h.Seq && !slices.ContainsFunc(h.Ranks, func(rank int) bool { return !o.spans[rank].covers(h.spans[rank]) })
		}
		whole := interval{h.From, h.Until}
		return !slices.ContainsFunc(h.Late, func(rank int) bool {
			own, in := o.spans[rank]
			return !in || !own.covers(whole)
		})
	})
}

// like is that of an operation of the communicator.
func (c *comm) like(sig *tape.Signature) like {
	return like{c.info.Name, sig.Call, tape.SizeClass(sig.Bytes)}
}

// lengthy lists the operations in which ranks were long, by their ranks, those alone that are wanted, in the order in which they are found.
func (c *comm) lengthy(wanted func(*lengthy) bool) (operations []map[int32]*lengthy) {
	bySeq := make(map[uint64]map[int32]*lengthy)
	for _, m := range c.members {
		for i := range m.lengthy {
			l := &m.lengthy[i]
			if m.info.Rank < 0 || !wanted(l) {
				continue
			}
			if bySeq[l.seq] == nil {
				bySeq[l.seq] = make(map[int32]*lengthy)
				operations = append(operations, bySeq[l.seq])
			}
			bySeq[l.seq][int32(m.info.Rank)] = l
		}
	}
	return operations
}

// heldUp is an operation in which some ranks were long, by rank, and its signature.
func (c *comm) heldUp(in map[int32]*lengthy) (h Held, sig *tape.Signature) {
	h = Held{Comm: c.info.Name, CommID: c.info.ID, size: c.info.Size, spans: make(map[int]interval)}
	ranks := slices.Sorted(maps.Keys(in))
	for _, rank := range ranks {
		l := in[rank]
		h.For, h.Seq, sig = max(h.For, l.time()), l.seq, &l.sig
	}
	late := make(map[int]bool)
	for _, rank := range ranks {
		m, l := c.byRank[rank], in[rank]
		if m == nil || 2*l.time() < h.For { // it came late itself
			continue
		}
		h.Ranks = append(h.Ranks, m.jobRank())
		own := interval{m.proc.at(l.start), m.proc.at(l.end)}
		h.spans[m.jobRank()] = own
		if h.From.IsZero() || own.from.Before(h.From) {
			h.From = own.from
		}
		if own.until.After(h.Until) {
			h.Until = own.until
		}
		if last := c.byRank[whomInTheEnd(l, in)]; last != nil {
			late[last.jobRank()] = true
		}
	}
	h.Call = sig.Call.String()
	slices.Sort(h.Ranks)
	for rank := range late {
		h.Late = append(h.Late, rank)
	}
	slices.Sort(h.Late)
	return h, sig
}

// whomInTheEnd follows who waited for whom to a rank that was not in the operation for most of the time for which it was waited for; -1 if
// there is none.
func whomInTheEnd(l *lengthy, in map[int32]*lengthy) int32 {
	for range in {
		next := in[l.whom]
		if next == nil || 2*int64(next.time()) < l.waited {
			return l.whom
		}
		l = next
	}
	return -1
}

// tell makes Text, of the operation and of those that it held up.
func (h *Held) tell(behind []*Held) {
	text := fmt.Sprintf("The job was held up for %s: %s %s in %s from %s to %s", span(int64(h.For)), words.Ranks(h.Ranks),
		plural(len(h.Ranks), "was", "were"), h.title(), clockTime(h.From), clockTime(h.Until))
	switch {
	case len(h.Late) > 0:
		text += fmt.Sprintf(", and waited for %s", words.Ranks(h.Late))
	case len(h.Ranks) < h.size:
		text += fmt.Sprintf(", which the others had left: %s stopped, or slow", plural(len(h.Ranks), "it was", "they were"))
	}
	text += "."
	const most = 2
	for _, b := range behind {
		if len(b.Late) > 0 && h.behind < most {
			h.behind++
			text += fmt.Sprintf(" Meanwhile %s %s in %s, and waited for %s.", words.Ranks(b.Ranks), plural(len(b.Ranks), "was", "were"), b.title(), words.Ranks(b.Late))
		}
	}
	h.Text = text
}

func (h *Held) title() string {
	return numbered(h.Call, h.Seq) + " of " + cmp.Or(clean(h.Comm), h.CommID.Short())
}

// hangBefore is a sentence on those who had waited for a process for long, and whose operations failed when it died: that one was the hang. ""
// if there are none.
func (j *job) hangBefore(p *process) string {
	var worst Held
	for _, c := range j.comms {
		for _, in := range c.lengthy(func(l *lengthy) bool { return blames(l.code) }) {
			if h, _ := c.heldUp(in); h.For > worst.For && p.rank >= 0 && slices.Equal(h.Late, []int{p.rank}) {
				worst = h
			}
		}
	}
	if worst.For == 0 {
		return ""
	}
	return fmt.Sprintf(" %s had waited for it for %s, in %s.", capital(words.Ranks(worst.Ranks)), span(int64(worst.For)), worst.title())
}

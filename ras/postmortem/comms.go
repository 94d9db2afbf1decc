package postmortem

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// comm is a communicator over all tapes, with the largest size and the first name that a rank knows. The size given
// by a rank whose init failed counts only if there is no other: it may be why the init failed.
type comm struct {
	Comm
	members []*member       // by rank; those without a rank come first
	byRank  map[int]*member // the last that claimed the rank
}

// join merges the communicators of all processes. Two processes that claim one rank are a problem.
func (r *Report) join() {
	byID := make(map[lifecycle.CommID]*comm)
	for _, p := range r.procs {
		r.size = max(r.size, p.header.JobSize)
		for _, m := range p.members {
			c := byID[m.ID]
			if c == nil {
				c = &comm{Comm: Comm{ID: m.ID, Parent: m.Parent}, byRank: make(map[int]*member)}
				byID[m.ID] = c
				r.comms = append(r.comms, c)
			}
			c.add(m)
		}
	}
	for _, c := range r.comms {
		slices.SortStableFunc(c.members, func(a, b *member) int { return cmp.Compare(a.Rank, b.Rank) })
		c.measure()
		for _, m := range c.members {
			before := c.byRank[m.Rank]
			if before != nil && before.proc != m.proc {
				r.problem("", "%s and %s both claim to be rank %d of %s", before.proc.path, m.proc.path, m.Rank,
					m.name())
			}
			if m.Rank >= 0 && (before == nil || !m.proc.at(m.last).Before(before.proc.at(before.last))) {
				c.byRank[m.Rank] = m
			}
		}
	}
	slices.SortStableFunc(r.comms, func(a, b *comm) int { return a.Made.Compare(b.Made) })
}

func (c *comm) add(m *member) {
	c.members = append(c.members, m)
	c.Nodes, c.Name = max(c.Nodes, m.Nodes), cmp.Or(c.Name, m.Name)
	c.Engine = cmp.Or(c.Engine, m.Engine)
	for _, a := range m.acts() {
		c.Made = earlier(c.Made, m.proc.at(a.Start))
	}
	if c.Made.IsZero() && m.last > 0 {
		c.Made = m.proc.at(m.last)
	}
}

// measure finds the communicator's size.
func (c *comm) measure() {
	made := slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool {
		return m.End != nil && m.End.Kind == tape.ActInit
	})
	if len(made) == 0 {
		made = c.members
	}
	for _, m := range made {
		c.Size = max(c.Size, m.Size)
	}
}

// acts are the member's acts, ended and open.
func (m *member) acts() []*model.Act { return slices.Concat(m.over, m.Acts) }

// doing is the call that the member is in, or was in when the job ended, at end; nil if none.
func (m *member) doing(end time.Time) *Doing {
	p, o := m.proc, m.InFlight()
	if o == nil && len(m.Acts) == 0 {
		return nil
	}
	d := &Doing{Comm: m.Name, CommID: m.ID, Rank: m.Rank, Wait: -1, least: p.live == 0 && p.end.at == 0}
	var start int64
	var phase tape.Phase
	if o != nil {
		start, phase = o.Start, o.Phase
		d.Call, d.Seq, d.What, d.Wait = o.Signature.Call.String(), o.Seq, describe(o.Signature), int(o.Wait)
		d.TraceID = trace.OpTraceID(m.ID, m.Rank, o.Signature, o.Seq).String()
		if o.Wait >= 0 && o.WaitSince > 0 {
			d.WaitSince = p.at(o.WaitSince)
		}
	}
	if n := len(m.Acts); n > 0 && (o == nil || !o.Signature.Call.IsOperation()) {
		a := m.Acts[n-1]
		start = a.Start
		d.Call, d.Seq, d.TraceID = a.Kind.String(), a.Seq, trace.ActTraceID(m.ID, a.Kind, a.Seq).String()
		if o == nil {
			phase = a.Phase
		}
	}
	if phase != tape.PhaseNone {
		d.Phase = phase.String()
	}
	d.Since = p.at(start)
	until := p.gone(end)
	if p.live > 0 { // the process runs
		until = p.live
	}
	d.For = max(p.at(until).Sub(d.Since), 0)
	return d
}

func (r *Report) process(p *process, cs []*clock) Process {
	h := &p.header
	one := Process{
		Rank: p.rank, Host: h.Host, PID: h.KnownPID(), State: p.state(), Ended: p.end.how, Program: h.Program,
		Version: h.Version, Tape: p.path, Clock: slices.Index(cs, p.clock), Started: h.Created.UTC(),
		Last: h.Created.UTC(), Missed: p.missed,
	}
	if p.last > 0 {
		one.Last = p.at(p.last)
	}
	if p.end.at > p.end.left { // else it closed the tape, and nothing is known of its end
		one.EndedAt = p.at(p.end.at)
	}
	for _, rank := range p.model.Ranks() {
		if n := p.model.JobRank(rank, r.size); p.severalRanks && n >= 0 {
			one.Ranks = append(one.Ranks, n)
		}
	}
	one.Ranks = sorted(one.Ranks)
	for _, m := range p.members {
		if d := m.doing(r.End); d != nil {
			one.Doing = append(one.Doing, *d)
		}
	}
	return one
}

func (r *Report) reportComms() []Comm {
	list := make([]Comm, 0, len(r.comms))
	for _, c := range r.comms {
		for _, m := range c.members {
			c.Operations, c.Captured = max(c.Operations, m.count), max(c.Captured, m.Captured)
			c.Ranks = append(c.Ranks, m.report(r.End))
		}
		c.Absent, c.NumAbsent = c.absent()
		c.unjoined = r.unjoined(c)
		c.Acts = c.reportActs()
		list = append(list, c.Comm)
	}
	return list
}

func (m *member) report(end time.Time) Rank {
	h := &m.proc.header
	ended := m.State == lifecycle.StateDestroyed || m.State == lifecycle.StateAborted
	r := Rank{
		Rank: m.Rank, Process: m.proc.index, Host: h.Host, PID: h.KnownPID(), State: m.State.String(),
		Place: m.Place,
		Dead:  slices.Contains([]ProcessState{StateExited, StateDied}, m.proc.state()) && !ended, Operations: m.count,
		Captured: m.Captured, Begun: m.Begun, Ended: m.Done, Doing: m.doing(end),
	}
	if m.lastEnd > 0 {
		r.LastEnd = m.proc.at(m.lastEnd)
	}
	return r
}

// absent are the ranks without a tape. A damaged tape may claim any size, so the list is bounded.
func (c *comm) absent() (ranks []int, total int) {
	total = c.Size
	for rank := range c.byRank {
		if rank < c.Size {
			total--
		}
	}
	for rank := 0; rank < c.Size && len(ranks) < min(total, MaxAbsent); rank++ {
		if c.byRank[rank] == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks, max(total, 0)
}

// unjoined reports whether, for all that the tapes tell, the ranks without a tape are those of known processes which
// have not joined the communicator: there is a tape of each process of the job. If the job's size isn't known, there
// must be that many other processes that share another communicator with its ranks, or claimed a rank that another
// process has.
func (r *Report) unjoined(c *comm) bool {
	if r.size > 0 || len(r.emptiedTapes()) > 0 {
		return r.complete()
	}
	joined, others := make(map[*process]bool), make(map[*process]bool)
	for _, m := range c.byRank {
		joined[m.proc] = true
	}
	for _, o := range r.comms {
		if !slices.ContainsFunc(o.members, func(m *member) bool { return joined[m.proc] }) {
			continue
		}
		for _, m := range o.members {
			if !joined[m.proc] {
				others[m.proc] = true
			}
		}
	}
	return c.NumAbsent <= len(others)
}

// reportActs merges the ranks' parts in each act, with its errors.
func (c *comm) reportActs() []Act {
	type key struct {
		act tape.Act
		seq uint64
	}
	acts := make(map[key]*Act)
	find := func(k key, at time.Time) *Act {
		a := acts[k]
		if a == nil {
			a = &Act{Act: "operation", Seq: k.seq}
			if k.act != tape.ActNone {
				a.Act, a.TraceID = k.act.String(), trace.ActTraceID(c.ID, k.act, k.seq).String()
			}
			acts[k] = a
		}
		a.Start = earlier(a.Start, at)
		return a
	}
	for _, m := range c.members {
		for _, a := range m.acts() {
			r := find(key{a.Kind, a.Seq}, m.proc.at(a.Start))
			r.Ranks++
			if a.End == 0 {
				r.Open++
			} else {
				r.Longest = max(r.Longest, time.Duration(a.End-a.Start))
			}
		}
	}
	for _, e := range c.errors() {
		a := find(key{e.act, e.seq}, e.Time)
		a.Errors = append(a.Errors, e.Said)
	}
	list := make([]Act, 0, len(acts))
	for _, a := range acts {
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b Act) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Act, b.Act), cmp.Compare(a.Seq, b.Seq))
	})
	return list
}

// commError is an error, and the members that had it.
type commError struct {
	Said
	errorKey
	by    []*member
	calls int // that were refused, up to the last one with a record
	call  lifecycle.Call
}

// errorKey is equal for errors of several ranks that count as one: of the same act and code, with the same peer at
// fault or, without one, the same text. Refused calls are told apart by mistake, too.
type errorKey struct {
	act    tape.Act
	seq    uint64 // of the act
	code   lifecycle.Code
	misuse bool
	peer   int32
	text   string // if peer is none
	refusal
}

// refusal is equal for refused calls that are one mistake of the program: made at one place of its source, and refused
// for the same reason. Only numbers and the names of communicators may vary.
type refusal struct{ site, why string }

var varies = regexp.MustCompile(`"[^"]*"|\b[0-9a-f]*[0-9][0-9a-f]*\b`)

func refusalOf(r *tape.LifeRecord, text string) refusal {
	return refusal{site(r.Site), varies.ReplaceAllLiteralString(text, "#")}
}

// errors merges the errors of the ranks, in the order of time.
func (c *comm) errors() []*commError {
	byKey := make(map[errorKey]*commError)
	var all []*commError
	for _, m := range c.members {
		for i := range m.errors {
			r := &m.errors[i]
			text := cmp.Or(r.Text, r.Code.String())
			k := errorKey{act: r.Act, code: r.Code, misuse: r.Stage == tape.StageMisuse, peer: r.Peer}
			if r.Act != tape.ActNone {
				k.seq = r.Seq
			}
			if k.misuse && r.Code != lifecycle.CodeLeaked {
				k.refusal = refusalOf(r, text)
			}
			if r.Peer < 0 {
				k.text = text
			}
			e := byKey[k]
			if e == nil {
				e = &commError{errorKey: k, call: r.Call, Said: Said{
					Code: r.Code.String(), Text: text, Site: site(r.Site), First: site(r.First),
				}}
				byKey[k] = e
				all = append(all, e)
			}
			e.Time = earlier(e.Time, m.proc.at(r.Time))
			_, more := r.Refused()
			e.calls, e.least = e.calls+int(more), e.least || r.Times > 1
			e.Ranks, e.by = append(e.Ranks, m.Rank), append(e.by, m)
		}
	}
	for _, e := range all {
		e.Ranks = sorted(e.Ranks)
	}
	slices.SortStableFunc(all, func(a, b *commError) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// sorted are the ranks in order, each once.
func sorted(ranks []int) []int { return slices.Compact(slices.Sorted(slices.Values(ranks))) }

// site is where a call was made: a line of source, or what C code has, the function and the offset in its object.
func site(s lifecycle.Site) string {
	if s.File == "" || s.Line == 0 && s.Func != "" {
		return s.Func
	}
	return fmt.Sprintf("%s:%d", s.File, s.Line)
}

package postmortem

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// job is the processes' communicators, put together.
type job struct {
	procs    []*process
	end      time.Time
	comms    []*comm // in the order in which they were made
	byID     map[lifecycle.CommID]*comm
	calls    map[*member]*doing
	size     int // ranks of the job; 0 if unknown
	problems []Problem
}

// comm is a communicator over all tapes.
type comm struct {
	info    tape.CommInfo // of the rank that knows most; its Rank means nothing
	made    time.Time
	members []*member         // by rank; a rank that has none yet comes first
	byRank  map[int32]*member // the last that claimed the rank
}

// doing is a call that a member has begun and not ended.
type doing struct {
	m         *member
	act       tape.Act // ActNone: an operation
	call      lifecycle.Call
	seq       uint64
	sig       tape.Signature
	phase     tape.Phase
	start     int64
	wait      int32
	waitSince int64
}

func newJob(procs []*process, end time.Time) *job {
	j := &job{procs: procs, end: end, byID: make(map[lifecycle.CommID]*comm), calls: make(map[*member]*doing)}
	for _, p := range procs {
		j.size = max(j.size, p.header.JobSize)
		for _, m := range p.members {
			c := j.byID[m.ID]
			if c == nil {
				c = &comm{info: m.CommInfo, byRank: make(map[int32]*member)}
				j.byID[m.ID] = c
				j.comms = append(j.comms, c)
			}
			c.add(m)
			if d := m.doing(); d != nil {
				j.calls[m] = d
			}
		}
	}
	for _, c := range j.comms {
		slices.SortStableFunc(c.members, func(a, b *member) int { return cmp.Compare(a.Rank, b.Rank) })
		for _, m := range c.members {
			j.claim(c, m)
		}
	}
	slices.SortStableFunc(j.comms, func(a, b *comm) int { return a.made.Compare(b.made) })
	return j
}

func (c *comm) add(m *member) {
	c.members = append(c.members, m)
	c.info.Size, c.info.Nodes = max(c.info.Size, m.Size), max(c.info.Nodes, m.Nodes)
	c.info.Name = cmp.Or(c.info.Name, m.Name)
	for a := range m.allActs {
		if at := m.proc.at(a.Start); c.made.IsZero() || at.Before(c.made) {
			c.made = at
		}
	}
	if at := m.proc.at(m.last); c.made.IsZero() && m.last > 0 {
		c.made = at
	}
}

// claim gives the member its rank.
func (j *job) claim(c *comm, m *member) {
	if m.Rank < 0 {
		return
	}
	before := c.byRank[int32(m.Rank)]
	if before != nil && before.proc != m.proc {
		j.problems = append(j.problems, Problem{Text: fmt.Sprintf("%s and %s both claim to be rank %d of %s",
			before.proc.path, m.proc.path, m.Rank, m.name())})
	}
	if before == nil || !m.proc.at(m.last).Before(before.proc.at(before.last)) {
		c.byRank[int32(m.Rank)] = m
	}
}

// doing is the call that the member is in; nil if it is in none.
func (m *member) doing() *doing {
	var d *doing
	if o := m.InFlight(); o != nil {
		d = &doing{
			m: m, call: o.Signature.Call, seq: o.Seq, sig: o.Signature, phase: o.Phase, start: o.Start, wait: o.Wait,
			waitSince: o.WaitSince,
		}
	}
	if len(m.Acts) == 0 || d != nil && d.call.IsOperation() {
		return d
	}
	open := m.Acts[len(m.Acts)-1]
	if d == nil {
		d = &doing{m: m, phase: open.Phase, wait: -1, sig: tape.Signature{Peer: -1}}
	}
	d.act, d.call, d.seq, d.start = open.Kind, open.First.Call, open.Seq, open.Start
	return d
}

// allActs yields the acts that have ended, and those that are open.
func (m *member) allActs(yield func(*model.Act) bool) {
	for _, a := range m.over {
		if !yield(a) {
			return
		}
	}
	for _, a := range m.Acts {
		if !yield(a) {
			return
		}
	}
}

// gone tells whether the communicator has come to its end on this rank.
func (m *member) gone() bool {
	return m.State == lifecycle.StateDestroyed || m.State == lifecycle.StateAborted
}

// dead tells whether the process ended, by what can be known, without ending the communicator.
func (m *member) dead() bool { return m.proc.state() == StateDied && !m.gone() }

// traceID is the id of the trace in which the call is, or will be.
func (d *doing) traceID() string {
	if d.act != tape.ActNone {
		return trace.ActTraceID(d.m.ID, d.act, d.seq).String()
	}
	return trace.OpTraceID(d.m.ID, d.m.Rank, d.sig, d.seq).String()
}

func (j *job) report(d *doing) Doing {
	m := d.m
	r := Doing{
		Comm: m.Name, CommID: m.ID, Rank: m.Rank, Call: d.name(), Seq: d.seq, What: describe(d.sig, d.act),
		Since: m.proc.at(d.start), Wait: int(d.wait), TraceID: d.traceID(),
	}
	until := m.proc.gone(j.end)
	if m.proc.live > 0 { // it goes on
		until = m.proc.live
	}
	r.For, r.least = max(m.proc.at(until).Sub(r.Since), 0), m.proc.live == 0 && m.proc.end.at == 0
	if d.phase != tape.PhaseNone {
		r.Phase = d.phase.String()
	}
	if d.wait >= 0 && d.waitSince > 0 {
		r.WaitSince = m.proc.at(d.waitSince)
	}
	return r
}

func (j *job) process(p *process, cs []*clock) Process {
	h := &p.header
	r := Process{
		Rank: p.rank, Host: h.Host, PID: h.PID, State: p.state(), Program: h.Program, Version: h.Version, Tape: p.path,
		Clock: slices.Index(cs, p.clock), Started: h.Created.UTC(), Last: h.Created.UTC(), Missed: p.missed,
	}
	if p.last > 0 {
		r.Last = p.at(p.last)
	}
	for _, rank := range p.model.Ranks() {
		if p.many && rank.Number >= 0 {
			r.Ranks = append(r.Ranks, rank.Number)
		}
	}
	slices.Sort(r.Ranks)
	r.Ranks = slices.Compact(r.Ranks)
	for _, m := range p.members {
		if d := j.calls[m]; d != nil {
			r.Doing = append(r.Doing, j.report(d))
		}
	}
	return r
}

func (j *job) reportComms() []Comm {
	list := make([]Comm, 0, len(j.comms))
	for _, c := range j.comms {
		r := Comm{
			ID: c.info.ID, Parent: c.info.Parent, Name: c.info.Name, Size: c.info.Size, Nodes: c.info.Nodes,
			Made: c.made,
		}
		for _, m := range c.members {
			r.Operations = max(r.Operations, m.count)
			r.Ranks = append(r.Ranks, j.rank(m))
		}
		r.Absent, r.NumAbsent = c.absent()
		r.Acts = c.reportActs()
		list = append(list, r)
	}
	return list
}

func (j *job) rank(m *member) Rank {
	r := Rank{
		Rank: m.Rank, Process: m.proc.index, Host: m.proc.header.Host, PID: m.proc.header.PID, State: m.State.String(),
		Dead: m.dead(), Operations: m.count, Begun: m.Begun, Ended: m.Done,
	}
	if m.lastEnd > 0 {
		r.LastEnd = m.proc.at(m.lastEnd)
	}
	if d := j.calls[m]; d != nil {
		report := j.report(d)
		r.Doing = &report
	}
	return r
}

// absent are the ranks that left no tape. What a tape claims about the size may be anything, so the list is bounded.
func (c *comm) absent() (ranks []int, total int) {
	known := 0
	for rank := range c.byRank {
		if int(rank) < c.info.Size {
			known++
		}
	}
	total = max(c.info.Size-known, 0)
	for rank := 0; rank < c.info.Size && len(ranks) < min(total, MaxAbsent); rank++ {
		if c.byRank[int32(rank)] == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks, total
}

// reportActs puts the ranks' parts in each act together, and sorts the errors to them.
func (c *comm) reportActs() []Act {
	acts := make(map[actKey]*Act)
	find := func(k actKey, at time.Time) *Act {
		a := acts[k]
		if a == nil {
			a = &Act{Act: k.act.String(), Seq: k.seq, Start: at}
			if k.act == tape.ActNone {
				a.Act = "operation"
			} else {
				a.TraceID = trace.ActTraceID(c.info.ID, k.act, k.seq).String()
			}
			acts[k] = a
		}
		if at.Before(a.Start) {
			a.Start = at
		}
		return a
	}
	for _, m := range c.members {
		for a := range m.allActs {
			r := find(actKey{a.Kind, a.Seq}, m.proc.at(a.Start))
			r.Ranks++
			if a.End == 0 {
				r.Open++
			} else {
				r.Longest = max(r.Longest, time.Duration(a.End-a.Start))
			}
		}
	}
	for k, said := range c.said() {
		for _, s := range said {
			a := find(k, s.Time)
			a.Errors = append(a.Errors, s.Said)
		}
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

// commError is an error as the ranks of a communicator met it, with what it is about.
type commError struct {
	Said
	code   lifecycle.Code
	peer   int32
	misuse bool
	by     []*member
	call   lifecycle.Call
	seq    uint64
}

// said puts the errors of the ranks together: those that blame the same rank for the same thing are one.
func (c *comm) said() map[actKey][]*commError {
	all := make(map[actKey][]*commError)
	for _, m := range c.members {
		for i := range m.errors {
			e := &m.errors[i]
			k := actKey{e.Act, e.Seq}
			if e.Act == tape.ActNone {
				k.seq = 0
			}
			at := m.proc.at(e.Time)
			misuse := e.Stage == tape.StageMisuse
			same := slices.IndexFunc(all[k], func(s *commError) bool {
				return s.code == e.Code && s.misuse == misuse && s.peer == e.Peer && (e.Peer >= 0 || s.Text == e.Text)
			})
			if same >= 0 {
				s := all[k][same]
				s.Ranks, s.by = append(s.Ranks, m.Rank), append(s.by, m)
				if at.Before(s.Time) {
					s.Time = at
				}
				continue
			}
			all[k] = append(all[k], &commError{
				Said: Said{
					Code: e.Code.String(), Text: cmp.Or(e.Text, e.Code.String()), Ranks: []int{m.Rank}, Time: at,
					Site: site(e.Site), First: site(e.First),
				},
				code: e.Code, peer: e.Peer, misuse: misuse, by: []*member{m}, call: e.Call, seq: e.Seq,
			})
		}
	}
	for _, list := range all {
		for _, s := range list {
			slices.Sort(s.Ranks)
			s.Ranks = slices.Compact(s.Ranks)
		}
		slices.SortStableFunc(list, func(a, b *commError) int { return a.Time.Compare(b.Time) })
	}
	return all
}

// allErrors are all errors of the communicator, the first one first.
func (c *comm) allErrors() []*commError {
	return slices.SortedStableFunc(flatten(c.said()), func(a, b *commError) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
}

func flatten(m map[actKey][]*commError) func(func(*commError) bool) {
	return func(yield func(*commError) bool) {
		keys := slices.SortedFunc(maps.Keys(m), func(a, b actKey) int {
			return cmp.Or(cmp.Compare(a.act, b.act), cmp.Compare(a.seq, b.seq))
		})
		for _, k := range keys {
			for _, s := range m[k] {
				if !yield(s) {
					return
				}
			}
		}
	}
}

func site(s lifecycle.Site) string {
	if s.File == "" {
		return s.Func
	}
	return fmt.Sprintf("%s:%d", s.File, s.Line)
}

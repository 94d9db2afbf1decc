package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// findings says what went wrong, causes first.
func (j *job) findings() []Finding {
	blamed := j.blamed()
	dead := j.causes(blamed)
	waits := j.waits(dead)
	f := &finder{job: j, dead: dead, waits: waits, back: backwards(waits), told: make(map[*saying]bool), sayings: make(map[*comm][]*saying)}
	for _, c := range j.comms {
		f.sayings[c] = c.sayings()
	}
	f.mismatches()
	f.deaths(blamed)
	ends, circles := roots(waits, f.back)
	for _, c := range circles {
		f.circle(c)
	}
	for _, e := range ends {
		if e.proc == nil || !dead[e.proc] {
			f.missing(e)
		}
	}
	f.others()
	f.killed()
	return f.list
}

// blamed are the processes of which others said that they died, with when the first said so.
func (j *job) blamed() map[*process]int {
	blamed := make(map[*process]int)
	for _, c := range j.comms {
		for _, m := range c.members {
			for i := range m.errors {
				e := &m.errors[i]
				if !blames(e.Code) {
					continue
				}
				if of := c.byRank[e.Peer]; of != nil && of.proc != m.proc && of.proc.state() != StateClosed {
					blamed[of.proc]++
				}
			}
		}
	}
	return blamed
}

// blames tells whether an error says that another rank's process is gone.
func blames(code lifecycle.Code) bool {
	return code == lifecycle.CodeRankDead || code == lifecycle.CodeUnreachable
}

// causes are the processes whose end is a cause, and not only the end of a job that was ended: others said so, or went on without them.
func (j *job) causes(blamed map[*process]int) map[*process]bool {
	causes := make(map[*process]bool)
	var closed, alive bool
	for _, p := range j.procs {
		closed = closed || p.state() == StateClosed
		alive = alive || p.state() == StateAlive
	}
	for _, p := range j.procs {
		switch p.state() {
		case StateDied:
			causes[p] = blamed[p] > 0 || len(blamed) == 0 && (closed || alive)
		case StateUnknown:
			causes[p] = blamed[p] > 0 || len(blamed) == 0 && closed
		case StateClosed, StateAlive:
		}
	}
	return causes
}

// finder collects the findings.
type finder struct {
	*job
	dead    map[*process]bool
	waits   map[actor][]wait
	back    map[actor][]path
	sayings map[*comm][]*saying
	told    map[*saying]bool // those that a finding has
	list    []Finding
}

// finding makes a finding about a process, or about nobody that is known.
func (f *finder) finding(kind FindingKind, p *process, text string) *Finding {
	r := Finding{Kind: kind, Text: text, Rank: -1, Process: -1}
	if p != nil {
		r.Rank, r.Process, r.Host, r.PID = p.rank, p.index, p.header.Host, p.header.PID
	}
	f.list = append(f.list, r)
	return &f.list[len(f.list)-1]
}

func (r *Finding) in(d *doing) {
	r.Comm, r.CommID, r.Call, r.Seq, r.Since = d.m.info.Name, d.m.info.ID, d.name(), d.seq, d.m.proc.at(d.start)
}

// said gives the finding what was said.
func (f *finder) said(r *Finding, s *saying) {
	f.told[s] = true
	said := s.Said
	said.Ranks = nil
	for _, m := range s.by {
		said.Ranks = append(said.Ranks, m.jobRank())
	}
	slices.Sort(said.Ranks)
	said.Ranks = slices.Compact(said.Ranks)
	r.Said = append(r.Said, said)
}

// signature is what all ranks of a collective must agree on, for people.
func signature(d *doing) string {
	sig := d.sig
	switch d.call {
	case lifecycle.CallAllReduce, lifecycle.CallReduce, lifecycle.CallBroadcast:
	default:
		sig.Bytes = 0 // ranks may give buffers of different sizes
	}
	text := describe(sig, d.act)
	if sig.Bytes == 0 {
		text = strings.TrimPrefix(text, bytesText(0)+" ")
	}
	return strings.TrimSuffix(d.call.String()+" ("+text+")", " ()")
}

// mismatches are collectives in which the ranks made different calls: those that are in them still, and those that were told.
func (f *finder) mismatches() {
	for _, c := range f.comms {
		bySeq := make(map[uint64]map[string][]*doing)
		var seqs []uint64
		for _, m := range c.ranks() {
			d := f.calls[m]
			if d == nil || d.young() || d.act != tape.ActNone || !semconv.Collective(d.call) {
				continue
			}
			if bySeq[d.seq] == nil {
				bySeq[d.seq] = make(map[string][]*doing)
				seqs = append(seqs, d.seq)
			}
			s := signature(d)
			bySeq[d.seq][s] = append(bySeq[d.seq][s], d)
		}
		slices.Sort(seqs)
		for _, seq := range seqs {
			if len(bySeq[seq]) > 1 {
				f.mismatch(c, seq, bySeq[seq])
			}
		}
		var told *Finding
		for _, s := range f.sayings[c] {
			if s.code != lifecycle.CodeMismatch || f.told[s] {
				continue
			}
			if told == nil {
				told = f.finding(Mismatch, nil, fmt.Sprintf("The ranks of %s made different calls: %s", commName(c.info), clean(s.Text)))
				told.Comm, told.CommID, told.Call, told.Seq, told.Since = c.info.Name, c.info.ID, s.call.String(), s.seq, s.Time
			}
			f.said(told, s)
		}
	}
}

func (f *finder) mismatch(c *comm, seq uint64, calls map[string][]*doing) {
	type side struct {
		ranks []int
		text  string
		first *doing
	}
	var sides []side
	for text, ds := range calls {
		s := side{text: text, first: ds[0]}
		for _, d := range ds {
			s.ranks = append(s.ranks, d.m.info.Rank)
		}
		sides = append(sides, s)
	}
	slices.SortFunc(sides, func(a, b side) int {
		return cmp.Or(cmp.Compare(len(b.ranks), len(a.ranks)), cmp.Compare(a.text, b.text))
	})
	var parts []string
	for _, s := range sides {
		verb := "call"
		if len(s.ranks) == 1 {
			verb = "calls"
		}
		parts = append(parts, fmt.Sprintf("%s %s %s", words.Ranks(s.ranks), verb, s.text))
	}
	odd := sides[len(sides)-1]
	r := f.finding(Mismatch, odd.first.m.proc, fmt.Sprintf("The ranks of %s made different calls as their collective %d: %s.",
		commName(c.info), seq, strings.Join(parts, ", ")))
	r.in(odd.first)
	for _, s := range f.sayings[c] {
		if s.code == lifecycle.CodeMismatch && s.seq == seq {
			f.said(r, s)
		}
	}
}

// deaths are the processes that ended without closing their tapes, and whose end others noticed: first those of which most said so.
func (f *finder) deaths(blamed map[*process]int) {
	var dead []*process
	for _, p := range f.procs {
		if f.dead[p] {
			dead = append(dead, p)
		}
	}
	slices.SortStableFunc(dead, func(a, b *process) int {
		return cmp.Or(cmp.Compare(blamed[b], blamed[a]), cmp.Compare(a.last+a.clock.offset, b.last+b.clock.offset))
	})
	for _, p := range dead {
		f.death(p)
	}
}

func (f *finder) death(p *process) {
	var text strings.Builder
	name := p.where()
	if p.rank >= 0 {
		name = fmt.Sprintf("rank %d (%s)", p.rank, p.where())
	}
	fmt.Fprintf(&text, "%s died", name)
	if p.state() == StateUnknown {
		fmt.Fprintf(&text, ", or is out of sight (its tape is not closed)")
	}
	if p.last > 0 {
		fmt.Fprintf(&text, ". The last that it wrote is of %s, %s before the end", clockTime(p.at(p.last)), span(int64(f.end.Sub(p.at(p.last)))))
	}
	var calls []*doing
	for _, m := range p.members {
		if d := f.calls[m]; d != nil {
			calls = append(calls, d)
		}
	}
	switch {
	case len(calls) == 0 && len(p.members) > 0:
		text.WriteString(". It was in no call")
	case len(calls) > 0:
		fmt.Fprintf(&text, ". It was in %s", f.inCall(calls[0]))
	}
	text.WriteString("." + f.hangBefore(p))
	r := f.finding(Died, p, capital(text.String()))
	if len(calls) > 0 {
		r.in(calls[0])
	}
	f.waiting(r, actor{proc: p})
	for _, c := range f.comms {
		for _, s := range f.sayings[c] {
			if of := c.byRank[s.peer]; of != nil && of.proc == p && !s.misuse {
				f.said(r, s)
			}
		}
	}
}

// inCall tells of a call that was going on: "all_reduce 17 of world (4 MiB float32 sum; transfer) since 12:00:00.000, waiting for rank 1".
func (f *finder) inCall(d *doing) string {
	text := d.title()
	var details []string
	if what := describe(d.sig, d.act); what != "" {
		details = append(details, what)
	}
	if phase := phaseText(d.phase); phase != "" {
		details = append(details, phase)
	}
	if len(details) > 0 {
		text += " (" + strings.Join(details, "; ") + ")"
	}
	text += " since " + clockTime(d.m.proc.at(d.start))
	if d.wait >= 0 {
		text += ", waiting for " + f.rankOf(d, d.wait)
	}
	return text
}

// rankOf names a rank of the communicator of a call, by its rank in the job where that is known.
func (f *finder) rankOf(d *doing, rank int32) string {
	if m := f.byID[d.m.info.ID].byRank[rank]; m != nil {
		return m.who()
	}
	return fmt.Sprintf("rank %d of %s", rank, d.m.name())
}

// waiting adds who waits for the actor, and how.
func (f *finder) waiting(r *Finding, a actor) {
	found := tree(a, f.back)
	for from, p := range found {
		m := p.step.d.m
		if from.proc.rank >= 0 {
			r.Waiting = append(r.Waiting, from.proc.rank)
		} else {
			r.Waiting = append(r.Waiting, m.info.Rank)
		}
	}
	slices.Sort(r.Waiting)
	r.Waiting = slices.Compact(r.Waiting)
	r.Chain = f.chain(found)
}

// circle is a group of ranks that wait for each other.
func (f *finder) circle(walk []wait) {
	var steps []string
	var ranks []int
	for _, w := range walk {
		steps = append(steps, f.step(w))
		ranks = append(ranks, w.d.m.jobRank())
	}
	first := walk[0].d
	r := f.finding(Deadlock, first.m.proc, fmt.Sprintf("%s wait for each other.", capital(words.Ranks(ranks))))
	r.in(first)
	r.Chain, r.Waiting = steps, slices.Compact(slices.Sorted(slices.Values(ranks)))
}

// missing is one who is waited for and doesn't wait.
func (f *finder) missing(a actor) {
	found := tree(a, f.back)
	var direct *wait
	for from, p := range found {
		if p.long == 1 && (direct == nil || p.step.d.m.proc.at(p.step.d.start).Before(direct.d.m.proc.at(direct.d.start)) ||
			order(from, actorOf(direct.d.m)) < 0 && p.step.d.start == direct.d.start) {
			direct = &p.step
		}
	}
	if direct == nil {
		return
	}
	kind, verb := Missing, "is not in "+direct.d.title()
	name := f.whom(*direct)
	switch {
	case direct.slow:
		kind, verb = Slow, "is in "+direct.d.title()+" as all ranks are, and is waited for"
	case direct.to == nil:
		verb = "left no tape: it never came to " + direct.d.title() + ", or its tape is not here"
	default:
		if direct.to.proc.rank >= 0 {
			name += " (" + direct.to.proc.where() + ")"
		}
		if strings.HasPrefix(direct.why, "which gave") {
			verb = "gave up " + direct.d.title()
		} else {
			verb += strings.TrimPrefix(direct.why, "which is not in it")
		}
	}
	var proc *process
	if direct.to != nil {
		proc = direct.to.proc
		switch proc.state() {
		case StateDied:
			verb += "; it is dead"
		case StateClosed:
			verb += "; its program has ended"
		case StateAlive:
			verb += "; it is alive"
		case StateUnknown:
		}
	}
	r := f.finding(kind, proc, capital(fmt.Sprintf("%s %s.", name, verb)))
	r.in(direct.d)
	f.waiting(r, a)
}

// others are the errors that no other finding has.
func (f *finder) others() {
	for _, c := range f.comms {
		for _, s := range f.sayings[c] {
			if f.told[s] {
				continue
			}
			kind := Failed
			text := fmt.Sprintf("%s of %s failed on %s: %s.", numbered(s.call.String(), s.seq), commName(c.info), f.ranks(s), s.Code)
			if s.misuse {
				kind = Misused
				text = fmt.Sprintf("%s called %s on %s, which was refused: %s.", capital(f.ranks(s)), s.call, commName(c.info), s.Code)
			}
			var proc *process
			if len(s.by) == 1 {
				proc = s.by[0].proc
			}
			if of := c.byRank[s.peer]; of != nil {
				proc = of.proc
			}
			r := f.finding(kind, proc, text)
			r.Comm, r.CommID, r.Call, r.Seq, r.Since = c.info.Name, c.info.ID, s.call.String(), s.seq, s.Time
			f.said(r, s)
		}
	}
}

func (f *finder) ranks(s *saying) string {
	ranks := make([]int, len(s.by))
	for i, m := range s.by {
		ranks[i] = m.jobRank()
	}
	return words.Ranks(ranks)
}

// killed tells of processes that ended without closing their tapes, none of which is a cause.
func (f *finder) killed() {
	var ranks []int
	n := 0
	for _, p := range f.procs {
		if p.state() != StateDied || f.dead[p] {
			continue
		}
		n++
		if p.rank >= 0 {
			ranks = append(ranks, p.rank)
		}
	}
	if n == 0 {
		return
	}
	name := count(n, "process")
	if n != 1 {
		name = strings.TrimSuffix(name, "s") + "es"
	}
	if len(ranks) == n {
		name = words.Ranks(ranks)
	}
	f.finding(Killed, nil, capital(name)+" ended without closing "+plural(n, "its tape", "their tapes")+
		": killed, or "+plural(n, "it exited", "they exited")+" without stopping Carillon. No other rank noticed before it ended too.")
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// capital begins a sentence.
func capital(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

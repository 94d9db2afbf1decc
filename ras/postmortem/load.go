package postmortem

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/model"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// process is one tape, read.
type process struct {
	path     string
	header   tape.Header
	alive    osprocess.Liveness
	model    *model.Process
	slots    []tape.Slot
	members  []*member // in the order in which the process made them
	first    int64     // times of the first record and of the last sign of life, on the tape's own clock
	last     int64
	recorded int64 // time of the last record
	from     int64 // time of the oldest op record, if older ones were overwritten; else 0
	live     int64 // if it is alive: when its tape was read
	end      ending
	missed   uint64
	refused  bool         // refused calls may be missing, as records of acts were overwritten
	tallies  []tape.Tally // without those that are zero
	unread   bool         // reading it again failed, and Problems has it
	stalls   []stall      // calls that stalled and ended
	hung     []int64      // when an agent noted that it ran in a job that hung
	devices  []devices    // what an agent noted of them, in the order of time
	cut      bool         // the file was truncated; later records are lost
	problems []string

	clock        *clock
	index        int  // in Report.Processes
	rank         int  // in the job; -1 if the tape doesn't tell
	severalRanks bool // it has several ranks of one communicator
}

// member is one rank of a communicator, as its process's tape has it.
type member struct {
	*model.Comm
	proc     *process
	over     []*model.Act      // acts that have ended
	errors   []tape.LifeRecord // refused calls, and failures
	count    uint64            // operations that ended
	newest   model.Op          // the counted operation that began last
	lastEnd  int64
	gaveUp   int64          // when this rank gave up a stalled operation; 0: never
	aborted  bool           // it gave up by aborting the communicator
	last     int64          // time of its last record
	shared   []sharedMoment // the last sharedPerMember, or more
	timeline []entry        // the last Options.Last, or more
}

// stall has the times at which a call stalled and ended.
type stall struct {
	began, end int64
	device     bool // until a device had completed the call: the device may have had other work before
}

// devices is what an agent noted of a process's devices at a time, by the generation of the communicator.
type devices struct {
	at    int64
	stays map[uint32]model.Stay
}

// maxStalls bounds the stalled calls that are kept of a process.
const maxStalls = 256

// load reads the tapes, several at a time.
func (r *Report) load(files []string, opts *Options) (procs []*process) {
	read := make([]*process, len(files))
	errs := make([]error, len(files))
	parallel(len(files), func(i int) { read[i], errs[i] = readTape(files[i], opts) })
	for i, p := range read {
		if errs[i] != nil {
			r.problem(files[i], "was not read: it %s", why(errs[i]))
			if info, err := os.Lstat(files[i]); err == nil && info.Size() == 0 {
				r.emptied = append(r.emptied, files[i])
			}
			continue
		}
		procs = append(procs, p)
		for _, text := range p.problems {
			r.problem(p.path, "%s", text)
		}
	}
	return procs
}

// problem adds a Problem.
func (r *Report) problem(path, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

// problem adds a Problem of the process's tape.
func (p *process) problem(text string) { p.problems = append(p.problems, text) }

// parallel calls f with all numbers below n, as many at a time as there are processors.
func parallel(n int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error { f(i); return nil })
	}
	_ = group.Wait() // none fails
}

// why says what is wrong with a tape, without its path.
func why(err error) string {
	var format *tape.FormatError
	if errors.As(err, &format) {
		return format.Problem
	}
	return "can't be opened: " + cause(err).Error()
}

// readTape reads one tape.
func readTape(path string, opts *Options) (*process, error) {
	r, cut, err := tape.OpenCut(path)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read from
	p := &process{path: path, header: r.Header(), alive: r.Liveness(), rank: -1, cut: cut > 0}
	if p.cut {
		p.problem("was cut short: everything behind byte " + number(uint64(cut)) + " is missing")
	}
	p.slots, err = r.AppendSlots(nil) // before the records, which may be newer if the process is alive
	if err != nil {
		p.problem("has a part that can't be read: " + why(err))
	}
	if p.state() == StateAlive {
		p.live = tape.Now() // the process is on this machine, so the clock is the same
	}
	p.model = model.New(p.limits())
	members := make(map[uint32]*member)
	of := func(c *model.Comm) *member {
		m := members[c.Generation]
		if m == nil {
			m = &member{Comm: c, proc: p}
			members[c.Generation] = m
		}
		return m
	}
	for ev, err := range r.Events() {
		if err != nil {
			p.problem("could not be read to its end: " + why(err))
			break
		}
		p.sawAt(ev.Time())
		if r := &ev.Op; !ev.IsLife && r.Start <= r.Time {
			p.sawAt(r.Start) // the start may have no record
			p.from = cmp.Or(p.from, r.Time)
		}
		if step := p.model.Apply(&ev); step.Comm != nil {
			of(step.Comm).observe(&step, opts)
		}
	}
	p.model.Look(p.slots, nil)
	for i := range p.slots {
		s := &p.slots[i]
		for _, at := range []int64{s.OpStart, s.LastEnd, s.WaitSince} {
			p.sawAt(at)
		}
		if c := p.model.Comm(s.Generation); c != nil {
			m := of(c)
			m.count, m.lastEnd = max(m.count, s.Completed), max(m.lastEnd, s.LastEnd)
			m.last = max(m.last, s.OpStart, s.LastEnd)
		}
	}
	p.recorded = p.last
	p.sawAt(p.header.Seen)
	p.members = slices.SortedFunc(maps.Values(members), func(a, b *member) int {
		return cmp.Compare(a.Generation, b.Generation)
	})
	missed := r.Missed()
	p.missed, p.refused = missed.Life+missed.Op, missed.Life > 0
	if missed.Op == 0 {
		p.from = 0
	}
	p.count(r)
	p.findRank()
	p.countMembers()
	return p, nil
}

// limits are the thresholds of the process itself.
func (p *process) limits() model.Limits {
	l := model.Limits{Slow: p.header.SlowAfter, Floor: p.header.StallAfter}
	if !l.Valid() { // the tape may be damaged
		return model.Limits{}
	}
	return l
}

// countMembers counts the operations of communicators whose records were overwritten, by tallies and the numbers of
// collectives.
func (p *process) countMembers() {
	named := make(map[string][]*member)
	for _, m := range p.members {
		m.count = max(m.count, m.Done)
		named[m.Name] = append(named[m.Name], m)
	}
	well := make(map[string]uint64)
	for i := range p.tallies {
		t := &p.tallies[i]
		well[t.Name] += t.Count()
		if of := named[t.Name]; len(of) == 1 { // several members share the tallies
			of[0].count = max(of[0].count, well[t.Name])
		}
	}
}

// sawAt records a sign of life at that time.
func (p *process) sawAt(at int64) {
	if at <= 0 {
		return
	}
	if p.first == 0 || at < p.first {
		p.first = at
	}
	p.last = max(p.last, at)
}

// findRank finds the process's rank in the job, from its header or else from the model.
func (p *process) findRank() {
	ranks := p.model.Ranks()
	p.severalRanks = len(ranks) > 1
	switch {
	case p.severalRanks:
	case p.header.JobSize > 0 && p.header.Rank >= 0:
		p.rank = p.header.Rank
	case len(ranks) > 0:
		p.rank = ranks[0].Number
	}
}

// observe takes the member's next step.
func (m *member) observe(s *model.Step, opts *Options) {
	m.last = max(m.last, s.Time())
	if s.IsLife {
		m.observeLife(s)
	} else if s.Op != nil && s.Event.Op.Stage == tape.StageEnd {
		n, o := &m.newest, s.Op
		if !m.Enqueues() || o.Start > n.Start || o.Start == n.Start && (o.Seq != n.Seq || o.Signature != n.Signature) {
			m.newest = *o
			m.count++ // a device's completion does not count again
		}
		m.lastEnd = max(m.lastEnd, s.Op.End)
		m.share(&s.Event.Op)
		_, stalled := m.proc.model.Thresholds(s.Op)
		m.proc.addStall(s.Op.Start, stalled, s.Op.End, s.Op.Phase == tape.PhaseStream)
		m.observeGivingUp(s.Op, stalled)
	}
	if opts.wants(m) && shown(s.Event) {
		m.timeline = append(trimmed(m.timeline, opts.Last), newEntry(m, s.Event))
	}
}

// observeGivingUp takes the end of an operation that the rank itself gave up, perhaps as it ended the communicator.
func (m *member) observeGivingUp(o *model.Op, stalled int64) {
	own := o.Code == lifecycle.CodeAborted || o.Code == lifecycle.CodeUnfinished
	if !own || o.End-o.Start < stalled || m.gaveUp > 0 {
		return
	}
	m.gaveUp = o.End
	for _, a := range m.Acts {
		if a.Kind == tape.ActFinalize || a.Kind == tape.ActDestroy || a.Kind == tape.ActAbort {
			m.gaveUp = max(min(m.gaveUp, a.Start), o.Start+stalled)
			m.aborted = m.aborted || a.Kind == tape.ActAbort
		}
	}
}

func (m *member) gaveUpText() string {
	if m.aborted {
		return m.abortText()
	}
	return fmt.Sprintf("%s gave up an operation on %s", m.label(), m.name())
}

func (m *member) abortText() string {
	return fmt.Sprintf("%s aborted %s, in which it waited", m.label(), m.name())
}

// addStall records a call that has ended, if it had stalled.
func (p *process) addStall(start, stalled, end int64, device bool) {
	if end-start >= stalled {
		p.stalls = append(trimmed(p.stalls, maxStalls), stall{start + stalled, end, device})
	}
}

func (m *member) observeLife(s *model.Step) {
	r := &s.Life
	if r.Code != lifecycle.CodeOK && r.Code != lifecycle.CodeInProgress {
		m.errors = append(m.errors, *r)
	}
	if a := s.Act; a != nil && a.End > 0 {
		m.over = append(m.over, a)
		_, stalled := m.proc.model.Thresholds(a)
		m.proc.addStall(a.Start, stalled, a.End, false)
		barrier := a.Kind == tape.ActInit || a.Kind == tape.ActSplit // no rank ends it before all have begun it
		if barrier && a.Code == lifecycle.CodeOK && m.Rank >= 0 {
			key := sharedKey{kind: sharedAct, a: int32(a.Kind), seq: a.Seq}
			m.shared = append(trimmed(m.shared, sharedPerMember), sharedMoment{key: key, start: a.Start, end: a.End})
		}
	}
}

// name is the communicator's name, for people.
func (m *member) name() string { return commName(m.Name, m.ID) }

func commName(name string, id lifecycle.CommID) string { return words.Line(cmp.Or(name, id.Short())) }

// trimmed bounds a list: once it has twice as many items as last, it drops the older half. A last of 0 keeps all.
func trimmed[T any](list []T, last int) []T {
	if last > 0 && len(list) == 2*last {
		return list[:copy(list, list[last:])]
	}
	return list
}

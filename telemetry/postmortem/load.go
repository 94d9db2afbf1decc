package postmortem

import (
	"cmp"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// process is one tape, read.
type process struct {
	path     string
	header   tape.Header
	alive    osprocess.Liveness
	members  []*member // in the order in which the process made them
	first    int64     // time of the first record and of the last thing that is known, on the tape's own clock
	last     int64
	live     int64 // of one that is alive: when it was looked at
	died     int64 // of one that ended without closing its tape: when others noticed first; 0: nobody did
	missed   uint64
	tallies  []tape.Tally // that have counted something
	unsure   bool         // its tallies, or its communicators, may not all be here
	problems []Problem

	clock *clock
	index int  // in Report.Processes
	rank  int  // in the job; -1 if the tape doesn't tell
	many  bool // it has several ranks of one communicator: a job within one process
}

// member is one rank of a communicator, as its process's tape has it.
type member struct {
	proc   *process
	number uint32 // of the communicator in its process
	info   tape.CommInfo
	state  lifecycle.State
	slot   *tape.Slot

	acts     map[actKey]*act
	errors   []mistake
	running  []ongoing // started and not ended, by the records; at most maxRunning
	lengthy  []lengthy // operations that ended and took long
	behind   int64     // the end of the last of them
	begun    uint64    // number of the last collective that it began, and that it ended well
	ended    uint64
	count    uint64 // operations that ended
	lastEnd  int64
	last     int64 // time of its last record
	shared   recent[sharedMoment]
	timeline recent[entry]
}

type actKey struct {
	act tape.Act
	seq uint64
}

// act is one member's part in an act.
type act struct {
	actKey
	call       lifecycle.Call
	start, end int64 // end is 0 while it goes on
	phase      tape.Phase
	phaseSince int64
	code       lifecycle.Code
	site       lifecycle.Site
	refused    bool // it was a misuse, and never began
}

// mistake is a refused call, or a failure.
type mistake struct {
	tape.LifeRecord
}

// ongoing is an operation in flight, with what its last record says. Time is since when it waits, once it has.
type ongoing struct {
	tape.OpRecord
	whom   int32 // for whom it has waited longest at a time; -1: nobody
	waited int64 // for how long
}

// goesOn takes the operation's next record.
func (o *ongoing) goesOn(r *tape.OpRecord) {
	if waited := r.Time - o.Time; o.Wait >= 0 && waited > o.waited {
		o.whom, o.waited = o.Wait, waited
	}
	if r.Stage == tape.StageWait {
		o.Time = r.Time
	}
	o.Phase, o.Wait = r.Phase, r.Wait
}

// maxRunning bounds the operations of a communicator that are held to be in flight for want of records of their ends.
const maxRunning = 64

// load reads the tapes, several at a time.
func load(files []string, opts *Options) (procs []*process, problems []Problem) {
	type result struct {
		proc *process
		err  error
	}
	results := make([]result, len(files))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		wg.Go(func() {
			for i := range next {
				results[i].proc, results[i].err = read(files[i], opts)
			}
		})
	}
	for i := range files {
		next <- i
	}
	close(next)
	wg.Wait()
	for i, r := range results {
		if r.err != nil {
			problems = append(problems, Problem{Path: files[i], Text: "was not read: it " + why(r.err)})
			continue
		}
		procs = append(procs, r.proc)
		problems = append(problems, r.proc.problems...)
	}
	return procs, problems
}

// why is what is wrong with a tape, without the path.
func why(err error) string {
	var format *tape.FormatError
	if errors.As(err, &format) {
		return format.Problem
	}
	return "can't be opened: " + cause(err).Error()
}

// read reads one tape.
func read(path string, opts *Options) (*process, error) {
	r, cut, err := tape.OpenCut(path)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read from
	p := &process{path: path, header: r.Header(), alive: r.Liveness(), rank: -1}
	problem := func(text string) { p.problems = append(p.problems, Problem{Path: path, Text: text}) }
	if cut > 0 {
		problem("was cut short: what is behind byte " + number(uint64(cut)) + " is missing")
	}
	slots, err := r.AppendSlots(nil) // before the records: of a living process, what they tell is newer
	if err != nil {
		problem("has a part that can't be read: " + why(firstOf(err)))
	}
	if p.state() == StateAlive {
		p.live = tape.Now() // the same clock, as it is on this machine
	}
	members := make(map[uint32]*member)
	for ev, err := range r.Events() {
		if err != nil {
			problem("could not be read to its end: " + why(err))
			break
		}
		p.saw(eventTime(&ev))
		if r := &ev.Op; !ev.IsLife && r.Start <= r.Time {
			p.saw(r.Start) // of which there may be no record of its own
		}
		if ev.Comm.ID.IsZero() {
			continue
		}
		m := members[ev.Generation]
		if m == nil {
			m = p.newMember(ev.Generation, ev.Comm, opts)
			members[ev.Generation] = m
		}
		m.observe(&ev, opts)
	}
	for i := range slots {
		s := &slots[i]
		m := members[s.Generation]
		if m == nil {
			m = p.newMember(s.Generation, s.CommInfo, opts)
			members[s.Generation] = m
		}
		m.look(s)
	}
	p.members = slices.SortedFunc(maps.Values(members), func(a, b *member) int { return int(int64(a.number) - int64(b.number)) })
	missed := r.Missed()
	p.missed = missed.Life + missed.Op
	p.unsure = missed.Life > 0
	for _, text := range p.count(r, cut > 0) {
		problem(text)
	}
	p.place()
	p.countMembers()
	return p, nil
}

// countMembers counts the operations of communicators whose records were overwritten, as the tallies and the numbers of collectives tell.
func (p *process) countMembers() {
	named := make(map[string]int)
	for _, m := range p.members {
		named[m.info.Name]++
	}
	well := make(map[string]uint64)
	for i := range p.tallies {
		well[p.tallies[i].Name] += p.tallies[i].Count()
	}
	for _, m := range p.members {
		m.count = max(m.count, m.ended)
		if named[m.info.Name] == 1 { // else they share the tallies
			m.count = max(m.count, well[m.info.Name])
		}
	}
}

// firstOf is the first of joined errors.
func firstOf(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		return joined.Unwrap()[0]
	}
	return err
}

func eventTime(ev *tape.Event) int64 {
	if ev.IsLife {
		return ev.Life.Time
	}
	return ev.Op.Time
}

// saw notes that something was written at that time.
func (p *process) saw(at int64) {
	if at <= 0 {
		return
	}
	if p.first == 0 || at < p.first {
		p.first = at
	}
	p.last = max(p.last, at)
}

func (p *process) newMember(number uint32, info tape.CommInfo, opts *Options) *member {
	m := &member{proc: p, number: number, info: info, acts: make(map[actKey]*act)}
	m.shared.limit = sharedPerMember
	m.timeline.limit = opts.Last
	return m
}

// place finds out which rank of the job the process is: the one that it has in the first communicator that nothing was split from.
func (p *process) place() {
	ids := make(map[lifecycle.CommID]int)
	for _, m := range p.members {
		if m.info.Rank < 0 {
			continue
		}
		if rank, ok := ids[m.info.ID]; ok && rank != m.info.Rank {
			p.many = true
		}
		ids[m.info.ID] = m.info.Rank
	}
	if p.many {
		return
	}
	var root *member
	for _, m := range p.members {
		if !m.info.Parent.IsZero() || m.info.Rank < 0 {
			continue
		}
		if root == nil || m.info.Name == worldName && root.info.Name != worldName {
			root = m
		}
	}
	if root != nil {
		p.rank = root.info.Rank
	}
}

// worldName is what the runtime calls the communicator of all ranks of a job.
const worldName = "world"

// observe takes the member's next event.
func (m *member) observe(ev *tape.Event, opts *Options) {
	m.info = ev.Comm // a child of a split learns its rank late
	m.last = max(m.last, eventTime(ev))
	if ev.IsLife {
		m.observeLife(&ev.Life)
	} else {
		m.observeOp(&ev.Op)
	}
	if opts.wants(m) {
		m.timeline.add(newEntry(m, ev))
	}
}

func (m *member) observeLife(r *tape.LifeRecord) {
	if r.State != lifecycle.StateNone {
		m.state = r.State
	}
	if r.Act == tape.ActNone || r.Stage == tape.StageMisuse || r.Code != lifecycle.CodeOK {
		if r.Code != lifecycle.CodeOK && r.Code != lifecycle.CodeInProgress {
			m.errors = append(m.errors, mistake{*r})
		}
	}
	if r.Act == tape.ActNone {
		return
	}
	k := actKey{r.Act, r.Seq}
	a := m.acts[k]
	if a == nil {
		start := r.Time
		if r.Start > 0 && r.Start < start {
			start = r.Start
		}
		a = &act{actKey: k, call: r.Call, start: start, site: r.Site, refused: r.Stage == tape.StageMisuse}
		m.acts[k] = a
	}
	switch r.Stage {
	case tape.StageStart:
		a.refused = false
	case tape.StagePhase:
		a.phase, a.phaseSince = r.Phase, r.Time
	case tape.StageEnd:
		a.end, a.code, a.refused = max(r.Time, 1), r.Code, false
		if r.Code == lifecycle.CodeOK && meets(r.Act) && m.info.Rank >= 0 {
			key := sharedKey{kind: sharedAct, a: int32(r.Act), seq: r.Seq}
			m.shared.add(sharedMoment{key: key, start: a.start, end: a.end})
		}
	case tape.StageNone, tape.StageWait, tape.StageMisuse:
	}
}

func (m *member) observeOp(r *tape.OpRecord) {
	collective := together(r.Signature.Call)
	switch r.Stage {
	case tape.StageStart:
		// In the order in which they began: that of an operation that comes to wait is told only then.
		i, _ := slices.BinarySearchFunc(m.running, r.Start, func(o ongoing, start int64) int { return cmp.Compare(o.Start, start) })
		m.running = slices.Insert(m.running, i, ongoing{OpRecord: *r, whom: -1})
		if len(m.running) > maxRunning {
			m.running = m.running[1:]
		}
		if collective {
			m.begun = max(m.begun, r.Seq)
		}
	case tape.StagePhase, tape.StageWait:
		if i := m.find(r); i >= 0 {
			m.running[i].goesOn(r)
		}
	case tape.StageEnd:
		var before *ongoing
		if i := m.find(r); i >= 0 {
			o := m.running[i]
			o.goesOn(r)
			before = &o
			m.running = slices.Delete(m.running, i, i+1)
		}
		m.linger(r, before)
		m.count++
		m.lastEnd = max(m.lastEnd, r.Time)
		if collective {
			m.begun = max(m.begun, r.Seq)
			if r.Code == lifecycle.CodeOK {
				m.ended = max(m.ended, r.Seq)
			}
		}
		m.share(r)
	case tape.StageNone, tape.StageMisuse:
	}
}

// find finds the operation in flight that a record is about; -1 if there is none.
func (m *member) find(r *tape.OpRecord) int {
	return slices.IndexFunc(m.running, func(o ongoing) bool {
		return o.Seq == r.Seq && o.Signature.Call == r.Signature.Call && o.Signature.Peer == r.Signature.Peer
	})
}

// look takes what the in-flight table says of the member, which is the truth about what it is in.
func (m *member) look(s *tape.Slot) {
	m.slot = s
	if m.info.Rank < 0 || m.last == 0 {
		m.info = s.CommInfo
	}
	if s.State != lifecycle.StateNone {
		m.state = s.State
	}
	m.count = max(m.count, s.Completed)
	m.lastEnd = max(m.lastEnd, s.LastEnd)
	if together(s.Op.Call) {
		if s.Launched == s.Completed && m.begun < s.Seq && m.state != lifecycle.StateFailed {
			m.ended = s.Seq // its record was overwritten; had it failed, so would the communicator have
		}
		m.begun = max(m.begun, s.Seq)
	}
	for _, at := range []int64{s.OpStart, s.LastEnd, s.WaitSince} {
		m.proc.saw(at)
		m.last = max(m.last, at)
	}
}

// together tells whether all ranks make the call together, so that its number is that of a collective.
func together(call lifecycle.Call) bool {
	switch call {
	case lifecycle.CallSplit, lifecycle.CallShrink, lifecycle.CallGrow:
		return true
	default:
		return semconv.Collective(call)
	}
}

// name is the communicator's name, for people.
func (m *member) name() string { return commName(m.info) }

func commName(info tape.CommInfo) string {
	if info.Name == "" {
		return info.ID.Short()
	}
	return clean(info.Name)
}

// recent keeps the last of what is added to it; all if limit is 0.
type recent[T any] struct {
	limit int
	next  int // where the next goes, once it is full
	items []T
}

func (r *recent[T]) add(item T) {
	if r.limit == 0 || len(r.items) < r.limit {
		r.items = append(r.items, item)
		return
	}
	r.items[r.next] = item
	r.next = (r.next + 1) % r.limit
}

// all yields what is kept, in the order in which it was added.
func (r *recent[T]) all(yield func(*T) bool) {
	for i := range r.items {
		if !yield(&r.items[(r.next+i)%len(r.items)]) {
			return
		}
	}
}

// clean takes from a text what a terminal would obey: tapes may come from anywhere.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ', r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0xfffd:
			return '?'
		}
		return r
	}, s)
}

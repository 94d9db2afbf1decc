package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// Machine decides when a process looks at its job, and what it tells. It has no clock, lock, goroutine or I/O: Step
// takes an input and returns effects. The zero value is not ready; see NewMachine. It is for one goroutine.
type Machine struct {
	self    mesh.Member
	members map[string]*member
	leader  string // the coordinator; empty if none is known

	// Looks, while this process is the coordinator.
	leads   bool
	due     time.Time // of the next look; zero: none is planned
	round   uint64    // of the current look, or of the last
	looking bool
	began   time.Time // of the current look
	looked  time.Time // when the last one ended
	backoff time.Duration
	about   []lifecycle.CommID // in which a rank waits, as other processes reported
	others  []verdict.Note     // of processes that are not members, in the last look
	unsure  time.Time          // when an unbroken row of unsure looks began; zero: the last one was sure
	heals   time.Time          // until then connections may still wait because of an outage or a stop that is over

	// Open verdicts.
	tracker  verdict.Tracker
	current  time.Time            // when the ages in tracker were right
	lastTold map[string]told      // the open verdicts, by ID
	held     map[string]time.Time // by ID: when it was last known to hold
	past     []withdrawn          // lately, unresolved
	turn     uint64

	// Reports to the coordinator, while that is another process.
	trouble    bool
	telling    bool
	tries      int
	retry      time.Time         // when to report again; zero: not planned
	heard      time.Time         // when the coordinator last broadcast
	asked      time.Time         // when it last asked this process for its note
	turns      map[string]uint64 // by coordinator: the turn of its last broadcast
	handedOver bool              // this process was the coordinator, and has not heard the new one yet

	// Until ends no verdict is opened, as the process, or its job, was told to end; except on the processes named by
	// endedBefore, which are known to have ended before.
	ends        time.Time
	endedBefore []string

	out []Effect // of the current step
}

// told is an open verdict as it was last told of.
type told struct {
	since   time.Time // when this process learnt of it
	verdict verdict.Verdict
	at      time.Time
}

// withdrawn is a verdict that was withdrawn and is not known to be resolved.
type withdrawn struct {
	verdict verdict.Verdict
	at      time.Time
}

const (
	gatherTime = 50 * time.Millisecond  // from the first report until a coordinator asks: more reports usually follow
	askTime    = 2 * time.Second        // to wait for notes
	againFirst = time.Second            // until the second look while a verdict is open,
	againMost  = 5 * time.Second        // and between later ones
	shareTime  = 10 * time.Second       // until the list is sent again to agents that did not answer
	lookTime   = 2 * time.Second        // between two calls of Config.HeldUp
	rareLooks  = 60                     // lookTimes between two looks at a job whose operations have long been held up
	mostTries  = 5                      // to report trouble to the coordinator, before the next stall
	restTime   = 250 * time.Millisecond // between two looks: all ranks report one stall
	soonTime   = 250 * time.Millisecond // until another look at ranks that moved a moment ago
	silence    = 3 * againMost          // of a coordinator while a verdict is open, until it is asked to look
	doubt      = 5 * time.Second        // until a coordinator that doesn't answer is replaced: two would tell all twice
	departTime = 500 * time.Millisecond // from the end of a process until it counts as a cause: others may end with it
	cancelTime = time.Second            // the same after it canceled its calls: it may export telemetry before it ends
	resumeTime = time.Second            // from when a process runs again until it counts as a cause
	turnTime   = 3 * time.Second        // from one end of a process to the next, at most, if all are ended in turn
	endTime    = time.Minute            // from when the process was told to end: its launcher kills it after 30 s
	lingerTime = 15 * time.Second       // for which a verdict on a straggler close to the threshold stays open

	// silentTime is how long one process that runs and doesn't answer may delay verdicts, unsureTime how long several
	// in turn may.
	silentTime = 15 * time.Second
	unsureTime = 2 * silentTime
	// After an outage or a stop, connections may take twice its length, at most longestPause, plus healing to continue:
	// TCP doubles its pauses between retransmissions, and between probes of a full window, and the outage began before
	// it was noticed.
	healing      = 10 * time.Second
	longestPause = 2 * time.Minute // Linux's TCP_RTO_MAX
	// pastTime is how long the last mostPast unresolved withdrawals are broadcast again, as a message may be lost.
	pastTime = time.Minute
	mostPast = 32
)

// Input is something that happened: one of the types below.
type Input any

// The inputs.
type (
	// Membership is all members, as the mesh knows them now.
	Membership struct{ Members []mesh.Status }
	// Trouble tells that something failed or stalls in this process, or no longer stalls.
	Trouble struct{}
	// AskedToLook tells that another process asks for a look at the job, because of calls in these communicators.
	AskedToLook struct{ About []lifecycle.CommID }
	// AskedForNote tells that a process asked for this process's note, and got it.
	AskedForNote struct{ By string }
	// Notes are the answers to AskNotes that came in time, and the notes of processes that are not members.
	Notes struct {
		Round  uint64
		Notes  []verdict.Note
		Others []verdict.Note
	}
	// Told tells whether the receiver of TellTrouble has confirmed it.
	Told struct{ Heard bool }
	// Heard is a broadcast of a coordinator.
	Heard struct {
		From string
		Broadcast
	}
	// Tick tells that time has passed: that of a Wake, or any other.
	Tick struct{}
	// Ending tells that the process, or its job, was told to end, at a time: zero is now. After names processes that
	// had ended before.
	Ending struct {
		Since time.Time
		After []string
	}
	// Leave tells that the process leaves the job. Alone says that all others have ended, as far as is known.
	Leave struct {
		Note  verdict.Note // of this process
		Alone bool
	}
)

// Effect is something to do: one of the types below.
type Effect any

// The effects.
type (
	// AskNotes asks members for their notes, above all about these communicators. Notes follows within askTime.
	AskNotes struct {
		Round uint64
		Of    []string
		About []lifecycle.CommID
	}
	// TellTrouble asks the coordinator to look at the job. Told follows within askTime.
	TellTrouble struct{ To string }
	// StopTelling cancels TellTrouble: the coordinator knows, or will not answer.
	StopTelling struct{}
	// Broadcast sends all members the open verdicts, and the IDs of those that were withdrawn unresolved lately.
	Broadcast struct {
		Turn       uint64
		Open       []verdict.Verdict
		Unresolved []string
	}
	// Tell tells of a verdict that opened, changed or was withdrawn. Outward says that this process tells receivers
	// outside of the job.
	Tell struct {
		Change  verdict.Change
		Since   time.Time // when this process learnt of it
		Outward bool
	}
	// Publish says which verdicts are open now, and how they read.
	Publish struct{ Open []verdict.Verdict }
	// Settled says that a look at the job, which began then, has ended.
	Settled struct{ Began time.Time }
	// Wake asks for a Tick at that time. It replaces the last Wake.
	Wake struct{ At time.Time }
)

// NewMachine makes the machine of a process that knows no other one yet.
func NewMachine(self mesh.Member) *Machine {
	m := &Machine{
		self: self, members: map[string]*member{}, lastTold: map[string]told{},
		held: map[string]time.Time{}, turns: map[string]uint64{},
	}
	m.members[self.Name] = &member{status: mesh.Status{Member: self}}
	return m
}

// Step takes an input at the time now, and returns the effects in order.
func (m *Machine) Step(now time.Time, in Input) []Effect {
	m.out = nil
	switch in := in.(type) {
	case Membership:
		m.membership(in.Members, now)
	case Trouble:
		m.trouble, m.tries = true, 0
		m.lookSoon(now)
	case AskedToLook:
		m.about = among(append(m.about, in.About...))
		m.lookSoon(now)
	case AskedForNote:
		if in.By == m.leader && in.By != m.self.Name { // the note tells it of the trouble
			m.asked = now
			m.trouble, m.retry = false, time.Time{}
			m.stopTelling()
		}
	case Notes:
		m.notes(in, now)
	case Told:
		m.told(in.Heard, now)
	case Heard:
		m.hear(in, now)
	case Tick:
	case Ending:
		since := in.Since
		if since.IsZero() {
			since = now
		}
		if ends := since.Add(endTime); ends.After(m.ends) {
			m.ends = ends
		}
		m.endedBefore = in.After
	case Leave:
		m.leave(in, now)
		return m.out
	}
	m.lead(now)
	m.act(now)
	return m.out
}

func (m *Machine) add(e Effect) { m.out = append(m.out, e) }

// lookSoon plans a look in a moment, if this process is the coordinator.
func (m *Machine) lookSoon(now time.Time) {
	m.backoff = 0
	at := now.Add(gatherTime)
	if rest := m.looked.Add(restTime); at.Before(rest) {
		at = rest
	}
	if m.due.IsZero() || at.Before(m.due) {
		m.due = at
	}
}

// membership takes the members. A change calls for a look, except a new member or a suspicion.
func (m *Machine) membership(members []mesh.Status, now time.Time) {
	known := make(map[string]bool, len(members))
	for i := range members {
		s := &members[i]
		known[s.Member.Name] = true
		r := m.members[s.Member.Name]
		if r == nil {
			r = &member{status: *s, since: now}
			m.members[s.Member.Name] = r
		}
		before, was := r.phase, r.status.State
		r.observe(*s, now)
		if r.phase == before && was == s.State {
			continue
		}
		if s.State != mesh.Suspect && (r.phase != before || was != mesh.Suspect) {
			m.lookSoon(now)
		}
		if s.Member.Name == m.leader && r.phase != speaking {
			m.stopTelling() // it won't answer
		}
	}
	maps.DeleteFunc(m.members, func(name string, _ *member) bool { return !known[name] && name != m.self.Name })
}

// lead finds out which process is the coordinator: of those that answer, the one with the lowest rank.
func (m *Machine) lead(now time.Time) {
	var best *member
	for _, r := range m.members {
		s := &r.status
		answers := s.State == mesh.Alive || s.State == mesh.Suspect && now.Sub(s.Since) < doubt
		if answers && (best == nil || byRank(&s.Member, &best.status.Member) < 0) {
			best = r
		}
	}
	leader := ""
	if best != nil {
		leader = cmp.Or(best.status.Member.Keeper, best.status.Member.Name)
	}
	if leader == m.leader {
		return
	}
	m.leader = leader
	switch {
	case leader == m.self.Name && len(m.tracker.Open()) > 0:
		m.lookSoon(now) // what the last coordinator left open
	case leader != m.self.Name && m.leads:
		// Verdicts that this process sent to receivers outside of the job, and that the new coordinator doesn't have,
		// are withdrawn at its first broadcast.
		m.leads, m.heard, m.handedOver = false, now, len(m.tracker.Open()) > 0
		m.unsure = time.Time{}
		for _, r := range m.members { // a process that didn't answer then may answer later
			if r.phase == silent {
				r.on(answered, now)
			}
		}
		m.trouble = m.trouble || m.handedOver
	}
}

// byRank orders members: those without a rank come last.
func byRank(a, b *mesh.Member) int {
	return cmp.Or(cmp.Compare(uint(a.Rank), uint(b.Rank)), cmp.Compare(a.Name, b.Name))
}

// act does what is due, and asks to be woken for what is due later.
func (m *Machine) act(now time.Time) {
	if m.leader == m.self.Name {
		if m.trouble {
			m.trouble, m.retry = false, time.Time{}
			m.lookSoon(now)
		}
		if !m.looking && !m.due.IsZero() && !now.Before(m.due) {
			m.look(now)
		}
		if !m.looking && !m.due.IsZero() {
			m.add(Wake{m.due})
		}
		return
	}
	m.due = time.Time{}
	if len(m.tracker.Open()) > 0 && now.Sub(m.heard) > silence {
		m.trouble, m.heard = true, now
	}
	switch {
	case m.trouble && !m.telling && m.leader != "" && !now.Before(m.retry):
		m.trouble, m.telling, m.retry = false, true, time.Time{}
		m.add(TellTrouble{m.leader})
	case m.trouble && !m.telling && !m.retry.IsZero():
		m.add(Wake{m.retry})
	case len(m.tracker.Open()) > 0:
		m.add(Wake{now.Add(againMost)}) // is there still a coordinator?
	}
}

// look asks all for their notes. It includes processes that ended in order, as ranks may wait for them, until their
// tapes are final.
func (m *Machine) look(now time.Time) {
	m.round++
	m.looking, m.began, m.due = true, now, time.Time{}
	of := make([]string, 0, len(m.members))
	for name, r := range m.members {
		if r.phase != retired && !r.final && r.judged() {
			of = append(of, name)
		}
	}
	slices.Sort(of)
	about := m.about
	m.about = nil
	for _, v := range m.tracker.Open() {
		if !v.Comm.IsZero() {
			about = append(about, v.Comm)
		}
	}
	m.add(AskNotes{m.round, of, among(about)})
}

func (m *Machine) stopTelling() {
	if m.telling {
		m.add(StopTelling{})
	}
}

// told records whether the coordinator has confirmed the report of trouble.
func (m *Machine) told(heard bool, now time.Time) {
	m.telling = false
	if heard {
		m.tries = 0
		return
	}
	if m.tries++; m.tries < mostTries {
		m.trouble, m.retry = true, now.Add(againFirst)
	}
}

// hear takes over the open verdicts of the coordinator.
func (m *Machine) hear(in Heard, now time.Time) {
	if in.From == m.self.Name || in.Turn <= m.turns[in.From] {
		return
	}
	m.turns[in.From] = in.Turn
	if in.From != m.leader {
		return
	}
	m.heard = now
	to := toNobody
	if m.handedOver {
		m.handedOver, to = false, ofWithdrawals
	}
	m.holds(in.Open, now)
	m.apply(in.Open, to, func(v *verdict.Verdict) bool { return !slices.Contains(in.Unresolved, v.ID) }, now)
	if !m.asked.IsZero() { // else the look didn't include this process
		m.add(Settled{m.asked})
	}
}

// leave withdraws the open verdicts when the last process of the job leaves. They are unresolved, unless this process's
// call was completed, or a process that did not run has ended in order. A carillon agent that leaves before others
// withdraws them for its own subscribers.
func (m *Machine) leave(in Leave, now time.Time) {
	switch {
	case len(m.tracker.Open()) == 0:
	case in.Alone:
		notes := append(m.absent(), in.Note)
		m.apply(nil, m.all(), func(v *verdict.Verdict) bool { return v.Resolved(notes, 0) }, now)
	case m.self.Keeps():
		m.apply(nil, toNobody, func(*verdict.Verdict) bool { return false }, now)
	}
}

// absent are notes of the processes that don't run, so that verdicts on them don't count as resolved. Culprits that are
// no longer members count as unreachable.
func (m *Machine) absent() []verdict.Note {
	var notes []verdict.Note
	for name, r := range m.members {
		if f, known := r.fate(); r.phase == doubted || r.phase == retired {
			notes = append(notes, verdict.Note{Member: name, Fate: verdict.Unreachable})
		} else if known && f != verdict.Alive {
			notes = append(notes, verdict.Note{Member: name, Fate: f})
		}
	}
	other := map[string]bool{}
	for _, n := range m.others {
		if other[n.Member] = true; n.Fate != verdict.Alive {
			notes = append(notes, n)
		}
	}
	for _, v := range m.tracker.Open() {
		for _, r := range v.Culprits {
			if r.Member != "" && m.members[r.Member] == nil && !other[r.Member] &&
				(v.Reason == verdict.RankUnreachable || v.Reason == verdict.RankStopped) {
				notes = append(notes, verdict.Note{Member: r.Member, Fate: verdict.Unreachable})
			}
		}
	}
	return notes
}

// Open lists the open verdicts, as far as this process knows.
func (m *Machine) Open() []verdict.Verdict { return m.tracker.Open() }

// Since is when this process learnt of an open verdict.
func (m *Machine) Since(id string) time.Time { return m.lastTold[id].since }

// Leader is the member that coordinates, as far as this process knows; empty if none does.
func (m *Machine) Leader() string { return m.leader }

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
// takes what happened, and returns what there is to do. The zero value is not ready; see NewMachine. It is for one
// goroutine.
type Machine struct {
	self    mesh.Member
	members map[string]*member
	leader  string // the coordinator; empty if none is known

	// Of looks, while this process coordinates.
	leads   bool
	due     time.Time // when to look; zero: not at all
	round   uint64    // of the look that goes on, or of the last
	looking bool
	began   time.Time // the look that goes on
	looked  time.Time // when the last one ended
	backoff time.Duration
	about   []lifecycle.CommID // in which a rank waits, as others say
	others  []verdict.Note     // of processes that are no members, as of the last look
	unsure  time.Time          // since when looks have been unsure, without a pause; zero: the last one was sure
	heals   time.Time          // until then connections may still wait, after an outage that is over

	// What is open.
	tracker verdict.Tracker
	since   map[string]time.Time // by ID: when this process learnt of it
	held    map[string]time.Time // by ID: when it was known to hold last
	past    []withdrawn          // unresolved, lately
	turn    uint64

	// Of telling, while another process coordinates.
	trouble    bool
	telling    bool
	tries      int
	retry      time.Time // when to tell again; zero: not at all
	heard      time.Time // when the coordinator was heard last
	asked      time.Time // when it asked this process for its note last
	turns      map[string]uint64
	handedOver bool // this process coordinated before, and has not heard the new coordinator yet

	ending bool // the process was told to end: what happens from now on is no news

	out []Effect // of the step that goes on
}

// withdrawn is a verdict that was withdrawn and is not known to be healed.
type withdrawn struct {
	id string
	at time.Time
}

const (
	gatherTime = 50 * time.Millisecond  // from the first news until a coordinator asks: news rarely comes alone
	askTime    = 2 * time.Second        // for notes to come
	againFirst = time.Second            // until a coordinator asks again while something is open, the first time,
	againMost  = 5 * time.Second        // and in the end
	lookTime   = 10 * time.Second       // between two looks whether the process waits for one rank again and again
	mostTries  = 5                      // to tell the coordinator of trouble, before the next report of a stall
	restTime   = 250 * time.Millisecond // between two looks at the job: one stall is news from all ranks
	soonTime   = 250 * time.Millisecond // until another look at ranks that moved a moment ago
	silence    = 3 * againMost          // of a coordinator while something is open: its last message may be lost
	doubt      = 5 * time.Second        // for which one that doesn't answer stays it: two would tell everything twice
	departTime = 200 * time.Millisecond // since the end of a process until it counts as a cause: others may end with it
	lingerTime = 15 * time.Second       // for which a verdict on a straggler close to the threshold stays open

	// silentTime is how long a process that runs and doesn't answer may keep the coordinator from judging, unsureTime
	// how long all of them may, where it is another one each time.
	silentTime = 15 * time.Second
	unsureTime = 2 * silentTime
	// healing is how much longer than twice an outage connections may take to go on after it: TCP sends again after a
	// pause that is as long as all before it, and the outage began before it was noticed.
	healing = 10 * time.Second
	// pastTime is how long the last mostPast verdicts that were withdrawn unresolved are told again: a message may be
	// lost.
	pastTime = time.Minute
	mostPast = 32
)

// Input is something that happened: one of the types below.
type Input any

// The inputs.
type (
	// Membership is all members, as the mesh knows them now.
	Membership struct{ Members []mesh.Status }
	// Trouble tells that something stalls here, failed, or does so no longer.
	Trouble struct{}
	// AskedToLook tells that another process wants the job to be looked at, because of calls in these communicators.
	AskedToLook struct{ About []lifecycle.CommID }
	// AskedForNote tells that a process was given this process's note.
	AskedForNote struct{ By string }
	// Notes are the answers to AskNotes, as many as came in time, and what is known of processes that are no members.
	Notes struct {
		Round  uint64
		Notes  []verdict.Note
		Others []verdict.Note
	}
	// Told is whether the process that was told with TellTrouble has heard it.
	Told struct{ Heard bool }
	// Heard is what a coordinator says.
	Heard struct {
		From string
		Broadcast
	}
	// Tick tells that the time of a Wake has come, or any other time.
	Tick struct{}
	// Ending tells that the process was told to end.
	Ending struct{}
	// Leave tells that the process takes no part any more. Alone says that all others have ended, as far as is known.
	Leave struct {
		Note  verdict.Note // of this process
		Alone bool
	}
)

// Effect is something to do: one of the types below.
type Effect any

// The effects.
type (
	// AskNotes asks these members for their notes, above all about these communicators. Notes follows, within
	// two seconds.
	AskNotes struct {
		Round uint64
		Of    []string
		About []lifecycle.CommID
	}
	// TellTrouble asks the coordinator to look at the job. Told follows, within two seconds.
	TellTrouble struct{ To string }
	// StopTelling ends the attempt of TellTrouble: the coordinator knows, or will not answer.
	StopTelling struct{}
	// Broadcast tells all what is open, and which verdicts were withdrawn unresolved lately.
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
	// Publish says which verdicts are open now.
	Publish struct{ Open []verdict.Verdict }
	// Settled says that the job was looked at; what began before then is known.
	Settled struct{ Began time.Time }
	// Wake asks for a Tick at that time. It takes the place of the Wake before.
	Wake struct{ At time.Time }
)

// NewMachine makes the machine of a process that knows no other one yet.
func NewMachine(self mesh.Member) *Machine {
	m := &Machine{
		self: self, members: map[string]*member{}, since: map[string]time.Time{},
		held: map[string]time.Time{}, turns: map[string]uint64{},
	}
	m.members[self.Name] = &member{status: mesh.Status{Member: self}}
	return m
}

// Step takes what happened, at the time now, and returns what there is to do, in order.
func (m *Machine) Step(now time.Time, in Input) []Effect {
	m.out = nil
	switch in := in.(type) {
	case Membership:
		m.membership(in.Members, now)
	case Trouble:
		m.trouble, m.tries = true, 0
		m.news(now)
	case AskedToLook:
		m.about = among(append(m.about, in.About...))
		m.news(now)
	case AskedForNote:
		if in.By == m.leader && in.By != m.self.Name { // it knows with the note of the trouble here
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
		m.ending = true
	case Leave:
		m.leave(in, now)
		return m.out
	}
	m.lead(now)
	m.act(now)
	return m.out
}

func (m *Machine) add(e Effect) { m.out = append(m.out, e) }

// news has the coordinator look in a moment, if that is this process.
func (m *Machine) news(now time.Time) {
	m.backoff = 0
	at := now.Add(gatherTime)
	if rest := m.looked.Add(restTime); at.Before(rest) {
		at = rest
	}
	if m.due.IsZero() || at.Before(m.due) {
		m.due = at
	}
}

// membership takes what the mesh knows. A change calls for a look, unless a process only joined or is late.
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
			m.news(now)
		}
		if s.Member.Name == m.leader && r.phase != speaking {
			m.stopTelling() // it won't answer
		}
	}
	maps.DeleteFunc(m.members, func(name string, _ *member) bool { return !known[name] && name != m.self.Name })
}

// lead finds out which process coordinates: of those that answer, the one with the lowest rank. All see the same
// membership; where they don't, for a moment or because the network is parted, several coordinate.
func (m *Machine) lead(now time.Time) {
	var best *member
	for _, r := range m.members {
		s := &r.status
		answers := s.State == mesh.Alive || s.State == mesh.Suspect && now.Sub(s.Since) < doubt
		if answers && (best == nil || before(&s.Member, &best.status.Member)) {
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
		m.news(now) // what the last coordinator left open
	case leader != m.self.Name && m.leads:
		// What this process told receivers outside of the job, and the other one doesn't say, is withdrawn when that is
		// heard.
		m.leads, m.heard, m.handedOver = false, now, len(m.tracker.Open()) > 0
		m.trouble = m.trouble || m.handedOver
	}
}

// before orders candidates: ranks come before processes without one.
func before(a, b *mesh.Member) bool {
	if (a.Rank < 0) != (b.Rank < 0) {
		return a.Rank >= 0
	}
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name)) < 0
}

// act does what is due, and asks to be woken for what is to come.
func (m *Machine) act(now time.Time) {
	if m.leader == m.self.Name {
		if m.trouble {
			m.trouble, m.retry = false, time.Time{}
			m.news(now)
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

// look asks all for their notes. The processes that ended in order are asked for what their tapes tell, as somebody may
// wait for them, until that is final.
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

// told takes whether the coordinator knows of the trouble here.
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

// hear takes over what the coordinator says.
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
	if !m.asked.IsZero() { // else that was of a look without this process
		m.add(Settled{m.asked})
	}
}

// leave withdraws what is open when the last process of the job leaves: nobody waits any more, and nobody else will say
// so. It is unresolved, unless this process has what it waited for, or a process that did not run ran to its end. An
// agent that leaves before others withdraws it for its own receivers: they outlive its part of the job.
func (m *Machine) leave(in Leave, now time.Time) {
	switch {
	case len(m.tracker.Open()) == 0:
	case in.Alone:
		notes := append(m.absent(), in.Note)
		m.apply(nil, m.all(), func(v *verdict.Verdict) bool { return v.Healed(notes, 0) }, now)
	case m.self.Keeps():
		m.apply(nil, toNobody, func(*verdict.Verdict) bool { return false }, now)
	}
}

// absent are notes of the processes that don't run, so that nobody takes them for healed. Those of which nobody knows
// any more count as out of reach, if a verdict is open on them.
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
func (m *Machine) Since(id string) time.Time { return m.since[id] }

// Leader is the member that coordinates, as far as this process knows; empty if none does.
func (m *Machine) Leader() string { return m.leader }

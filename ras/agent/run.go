package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

const (
	// mostTries is how often an agent tells the coordinator of its trouble before it leaves that to the next stall report.
	mostTries = 5
	// restTime is between two looks at the job, however many have news: one stall is news from all ranks.
	restTime = 250 * time.Millisecond
	// silence is how many of the longest times between two looks a coordinator may say nothing while something is open.
	silence = 3
	// healing is how much longer than twice an outage connections may take to go on after it.
	healing = 10 * time.Second
	// farewell is how long a coordinator that leaves waits for the others to leave, too.
	farewell = time.Second
	// pastTime is how long all are told which verdicts were withdrawn unresolved, the last mostPast of them: one question may be lost.
	pastTime = time.Minute
	mostPast = 32
)

// loop is what one Run works with.
type loop struct {
	*Agent
	mesh    *mesh.Mesh // nil: the process is alone
	tracker verdict.Tracker
	leads   bool      // this process coordinated the last time
	heals   time.Time // until then connections may still wait, after an outage that is over
	ceded   bool      // it did before, and has not heard what the new coordinator says
	looked  time.Time // when this process's last look at the job ended
	heard   time.Time // when the coordinator was heard last
	silent  silences  // in the last of the looks that follow each other
	unsure  time.Time // since when some have been silent in each of them, whoever it was; zero: nobody was in the last
	turn    uint64
	telling sync.WaitGroup
	again   time.Duration        // until the next round, 0 if there need not be one
	tries   int                  // to tell of the trouble here
	held    map[string]time.Time // when each open verdict was last known to hold, by its ID
	past    []unresolved         // withdrawn lately
	// buried are those who ended or are out of reach and of whom nothing is open any more: nobody misses them.
	buried map[string]burial
}

// unresolved is a verdict that was withdrawn and is not known to be healed, and when.
type unresolved struct {
	id string
	at time.Time
}

func newLoop(a *Agent, m *mesh.Mesh) *loop {
	return &loop{Agent: a, mesh: m, held: map[string]time.Time{}, buried: map[string]burial{}}
}

// Run coordinates with the other agents until ctx ends. m is the process's mesh, with Handle, LocalNote and Member in its
// Config, or nil if the process is the whole job. It blocks, and is called once.
func (a *Agent) Run(ctx context.Context, m *mesh.Mesh) {
	l := newLoop(a, m)
	defer l.telling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := time.NewTicker(a.cfg.Timing.Look)
	defer look.Stop()
	again := time.NewTimer(time.Hour)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			l.end()
			return
		case <-look.C:
			if !a.heldUp() {
				continue
			}
			a.mu.Lock()
			a.trouble = true
			a.mu.Unlock()
		case <-a.wake:
			l.again, l.tries = 0, 0
			if !sleep(ctx, max(a.cfg.Timing.Gather, restTime-time.Since(l.looked))) {
				l.end()
				return
			}
		case <-again.C: // what was scheduled is due, whether anything is open or not: the last look may have been unsure
			a.mu.Lock()
			a.asked = true
			a.mu.Unlock()
		}
		l.step(ctx)
		again.Stop()
		if l.again > 0 {
			again.Reset(l.again)
		}
	}
}

// end withdraws what is open when the last process of the job leaves: nobody waits any more, and nobody else will say so. It is unresolved,
// unless this process has what it waited for, or who did not run ran to its end. When all are told to end at once nobody is the last: so a
// coordinator that has told something waits a moment for the others. Of those who stay the next one coordinates.
func (l *loop) end() {
	if len(l.tracker.Open()) == 0 {
		return
	}
	if l.leads {
		deadline := time.NewTimer(farewell)
		defer deadline.Stop()
		for late := false; l.others() && !late; {
			select {
			case <-l.wake: // somebody left, perhaps
			case <-deadline.C:
				late = true
			}
		}
	}
	if l.others() {
		return
	}
	to := everybody
	if !l.leads {
		to = everybodyAgain
	}
	members := l.members()
	notes := withForgotten(withLost([]verdict.Note{l.Note()}, members), members, l.tracker.Open())
	l.apply(nil, to, func(v *verdict.Verdict) bool { return v.Healed(notes, 0) }) // that it has done something lately says nothing any more
}

// others tells whether there are processes that may go on: those that have neither left nor died. Who is out of reach
// isn't one of them: it has not heard what is open here, and may never be heard of again.
func (l *loop) others() bool {
	return slices.ContainsFunc(l.members(), func(s mesh.Status) bool {
		return s.Member.Name != l.cfg.Self.Name && s.State != mesh.Left && s.State != mesh.Dead &&
			s.State != mesh.Unreachable
	})
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// heldUp forgets what is past, and tells whether somebody here waits for one rank again and again.
func (a *Agent) heldUp() bool {
	table := a.cfg.Slots(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	live := make(map[uint32]bool, len(table))
	for i := range table {
		live[table[i].Generation] = true
	}
	now := a.cfg.Now()
	a.book.prune(live, now)
	return a.book.heldUp(now)
}

// members are all that are known; this process alone if it has no mesh.
func (l *loop) members() []mesh.Status {
	if l.mesh == nil {
		return []mesh.Status{{Member: l.cfg.Self}}
	}
	return l.mesh.Members()
}

// step does what there is to do now, and says in again when there may be more.
func (l *loop) step(ctx context.Context) {
	now := time.Now()
	leader := coordinator(l.members(), now)
	l.mu.Lock()
	l.leader = leader
	l.mu.Unlock()
	if leader != l.cfg.Self.Name {
		if l.leads {
			l.cede(now)
		}
		l.follow(ctx, leader, now)
		return
	}
	l.mu.Lock()
	due := l.trouble || l.asked || len(l.open) > 0
	inherited, remote, past := l.fresh && !l.leads, l.remote, l.Agent.past
	l.trouble, l.asked, l.fresh = false, false, false
	l.mu.Unlock()
	if inherited { // what the last coordinator left open
		l.holds(remote, now)
		l.apply(remote, nobody, notAmong(past))
		due = true
	}
	if !due {
		l.again = 0
		return
	}
	l.lead(ctx)
}

// cede makes this process one that follows: another one has come back. What this one told receivers outside of the job,
// and the other one doesn't say, is withdrawn when that is heard; so it asks.
func (l *loop) cede(now time.Time) {
	l.leads, l.heard, l.silent, l.unsure = false, now, nil, time.Time{}
	if len(l.tracker.Open()) == 0 {
		return
	}
	l.ceded = true
	l.mu.Lock()
	l.trouble = true
	l.mu.Unlock()
}

// follow takes over what the coordinator says, and tells it of trouble here.
func (l *loop) follow(ctx context.Context, leader string, now time.Time) {
	l.mu.Lock()
	fresh, open, past, noted := l.fresh && l.from == leader, l.remote, l.Agent.past, l.noted
	l.asked, l.fresh = false, false
	l.mu.Unlock()
	if fresh {
		l.heard = now
		to := nobody
		if l.ceded {
			l.ceded, to = false, ofWithdrawals
		}
		l.holds(open, now)
		l.apply(open, to, notAmong(past))
		l.settle(noted)
	}
	l.again = 0
	if len(l.tracker.Open()) > 0 {
		l.again = l.cfg.Timing.AgainMost // whether there is still a coordinator
	}
	l.mu.Lock()
	trouble, notes := l.trouble, l.notes
	l.trouble = false
	l.mu.Unlock()
	if l.again > 0 && now.Sub(l.heard) > silence*l.cfg.Timing.AgainMost {
		trouble = true // its last word was lost, perhaps
	}
	if !trouble || leader == "" || l.tell(ctx, leader, notes) {
		return
	}
	if l.tries++; l.tries < mostTries {
		l.mu.Lock()
		l.trouble = true
		l.mu.Unlock()
		l.again = l.cfg.Timing.Again
	}
}

// notAmong tells of a verdict that another process withdrew whether it is healed, by the IDs of those that are not.
func notAmong(unresolved []string) func(*verdict.Verdict) bool {
	return func(v *verdict.Verdict) bool { return !slices.Contains(unresolved, v.ID()) }
}

// tell asks the coordinator to look, and reports whether it will. It ends early when the coordinator asks this process,
// which was asked notes times before, by itself, and when the coordinator is known not to answer.
func (l *loop) tell(ctx context.Context, leader string, notes uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timing.Ask)
	defer cancel()
	l.mu.Lock()
	asks, about := l.notes != notes, l.book.stuck()
	l.hush = cancel
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.hush = nil
		l.mu.Unlock()
	}()
	if asks {
		return true
	}
	q, err := l.mesh.Ask(ctx, (&message{Kind: askLook, About: about}).encode(), leader)
	if err != nil {
		return false
	}
	for ans := range q.Answers() {
		if ans.By == leader {
			return true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notes != notes
}

// lead asks all for their notes, finds the verdicts, and tells all: those who gave a note shall know that it was looked
// at, and who missed the last word shall have this one.
func (l *loop) lead(ctx context.Context) {
	began, start := l.cfg.Now(), time.Now()
	notes := l.gather(ctx)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	members := l.members() // their fates now: some may have died meanwhile
	fates, unsure := withFates(notes, members, now, l.listen(notes, members, now))
	l.remember(members)
	notes = concerned(slices.Clone(fates), l.buried)
	verdicts := continued(verdict.Diagnose(sortedByName(notes)), l.tracker.Open())
	for _, v := range l.tracker.Open() {
		if v.Reason == verdict.RankUnreachable {
			// TCP sends again after a pause that is as long as all before it; the outage began before it was noticed.
			l.heals = now.Add(2*time.Duration(v.Age) + healing)
		}
	}
	if now.Before(l.heals) {
		before := len(verdicts)
		verdicts = slices.DeleteFunc(verdicts, func(v verdict.Verdict) bool { return v.Reason == verdict.Transport })
		unsure = unsure || len(verdicts) < before
	}
	if unsure {
		verdicts = known(verdicts)
	}
	to := everybody
	if !l.leads {
		to = everybodyAgain
	}
	l.leads, l.ceded = true, false
	l.holds(verdicts, start)
	fates = withForgotten(withLost(fates, members), members, l.tracker.Open())
	healed := func(v *verdict.Verdict) bool { return v.Healed(fates, now.Sub(l.held[v.ID()])) }
	if unsure {
		verdicts = kept(verdicts, l.tracker.Open(), healed)
	}
	l.apply(verdicts, to, healed)
	l.broadcast(ctx)
	l.settle(began)
	l.looked = time.Now()
	if len(verdicts) == 0 && !unsure && !stalled(notes) {
		l.again = 0
		return
	}
	if unsure { // it is known soon
		l.again = 0
	}
	l.again = min(max(2*l.again, l.cfg.Timing.Again), l.cfg.Timing.AgainMost)
}

// question asks for notes, above all about the communicators in which somebody waits, as far as is known here.
func (l *loop) question() *message {
	l.mu.Lock()
	l.rounds++
	about := append(l.about, l.book.stuck()...)
	l.about = nil
	l.mu.Unlock()
	for _, v := range l.tracker.Open() {
		if !v.Comm.IsZero() {
			about = append(about, v.Comm)
		}
	}
	return &message{Kind: askNotes, About: among(about)}
}

// gather asks all for their notes.
func (l *loop) gather(ctx context.Context) []verdict.Note {
	question := l.question()
	if l.mesh == nil {
		return []verdict.Note{l.Note()}
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timing.Ask)
	defer cancel()
	q, err := l.mesh.Ask(ctx, question.encode())
	if err != nil {
		l.cfg.Logger.Debug("nobody can be asked", "error", err)
		return []verdict.Note{l.Note()}
	}
	var notes []verdict.Note
	for ans := range q.Answers() {
		n, err := decodeNote(ans.From, ans.Body)
		if err != nil {
			l.cfg.Logger.Debug("an answer that is no note", "from", ans.From, "by", ans.By, "error", err)
			continue
		}
		notes = append(notes, n)
	}
	return notes
}

// audience is who, outside of this process, is told of changes.
type audience uint8

const (
	nobody         audience = iota
	ofWithdrawals           // receivers outside of the job, of what is withdrawn
	everybody               // they, of all changes
	everybodyAgain          // they, and once more of what was open: they may have heard of it, or not, and not from this process
)

// holds remembers that verdicts were known to hold at a time.
func (l *loop) holds(verdicts []verdict.Verdict, at time.Time) {
	for i := range verdicts {
		l.held[verdicts[i].ID()] = at
	}
}

// apply makes verdicts the open ones, and tells what changed. healed says of one that is not among them any more whether its cause is gone.
func (l *loop) apply(verdicts []verdict.Verdict, to audience, healed func(*verdict.Verdict) bool) {
	was := map[string]bool{}
	for _, v := range l.tracker.Open() {
		was[v.ID()] = true
	}
	changes := l.tracker.Update(verdicts)
	now := time.Now()
	l.past = slices.DeleteFunc(l.past, func(p unresolved) bool { return now.Sub(p.at) >= pastTime })
	since := map[string]time.Time{}
	l.mu.Lock()
	maps.Copy(since, l.since)
	l.open = l.tracker.Open()
	open := l.open
	for i := range changes {
		v := &changes[i].Verdict
		delete(was, v.ID())
		switch changes[i].Kind {
		case verdict.Opened:
			l.since[v.ID()] = now
			l.past = slices.DeleteFunc(l.past, func(p unresolved) bool { return p.id == v.ID() })
			if to >= everybody {
				l.reached[v.Reason]++
			}
		case verdict.Withdrawn:
			changes[i].Unresolved = !healed(v)
			if changes[i].Unresolved {
				l.past = append(l.past[max(0, len(l.past)+1-mostPast):], unresolved{v.ID(), now})
			}
			delete(l.since, v.ID())
			delete(l.held, v.ID())
		case verdict.Changed:
		}
	}
	l.mu.Unlock()
	if len(changes) > 0 {
		l.bury(changes, open, l.members())
	}
	if len(changes) > 0 && l.cfg.Open != nil {
		l.cfg.Open(open)
	}
	for i := range changes {
		ev := verdictEvent(&changes[i], since[changes[i].Verdict.ID()], now)
		if to == everybodyAgain && changes[i].Kind == verdict.Withdrawn {
			// Who takes over ends what the last coordinator told. Its own receivers end only what they know of.
			l.cfg.Event(verdictEvent(&verdict.Change{Kind: verdict.Changed, Verdict: changes[i].Verdict}, now, now), true)
		}
		l.cfg.Event(ev, to >= everybody || to == ofWithdrawals && changes[i].Kind == verdict.Withdrawn)
	}
	if to != everybodyAgain {
		return
	}
	for _, v := range open {
		if was[v.ID()] {
			l.cfg.Event(verdictEvent(&verdict.Change{Kind: verdict.Changed, Verdict: v}, now, now), true)
		}
	}
}

// broadcast tells all what is open. It doesn't wait for them.
func (l *loop) broadcast(ctx context.Context) {
	if l.mesh == nil {
		return
	}
	l.turn++
	past := make([]string, len(l.past))
	for i, p := range l.past {
		past[i] = p.id
	}
	body := encodeOpen(l.cfg.Self.Name, l.turn, l.tracker.Open(), past)
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timing.Ask)
	q, err := l.mesh.Ask(ctx, body)
	if err != nil {
		cancel()
		return
	}
	l.telling.Go(func() {
		defer cancel()
		for range q.Answers() { // until all know
			continue
		}
	})
}

package agent

import (
	"slices"
	"time"

	"github.com/carillon-rt/carillon/ras/verdict"
)

// notes judges the job by the notes that came.
func (m *Machine) notes(in Notes, now time.Time) {
	if !m.looking || in.Round != m.round {
		return
	}
	m.looking = false
	if m.leader != m.self.Name {
		return
	}
	all, unsure := m.assemble(in.Notes, now)
	m.others = in.Others
	all = append(all, m.others...)
	verdicts, soon := verdict.Diagnose(all)
	verdicts = m.tracker.Continue(verdicts)
	verdicts, withheld, more := m.withhold(verdicts, all, now)
	unsure = m.doubts(unsure || more, now)
	absent := m.absent()
	resolved := func(v *verdict.Verdict) bool { return v.Resolved(append(absent, all...), now.Sub(m.held[v.ID])) }
	if unsure {
		verdicts = slices.DeleteFunc(verdicts, vague)
	}
	m.holds(verdicts, m.began)
	verdicts = m.keep(verdicts, unsure, resolved, all, now)
	to := m.all()
	m.leads, m.handedOver = true, false
	m.apply(verdicts, to, func(v *verdict.Verdict) bool { return resolved(v) || v.Answered(all) }, now)
	for _, n := range all { // all but the dead whose tapes are lost: others may still fail because of them
		if slices.ContainsFunc(withheld, func(v verdict.Verdict) bool { return v.Accuses(n.Member) }) {
			continue // the verdict may be told later
		}
		dead := n.Fate == verdict.Dead && len(n.Slots) > 0 && !n.Stale
		if dead && !met(&n, all) || n.Fate == verdict.Unreachable {
			m.release(n.Member)
		}
	}
	m.turn++
	past := make([]string, len(m.past))
	for i, p := range m.past {
		past[i] = p.verdict.ID
	}
	m.add(Broadcast{m.turn, m.tracker.Open(), past})
	m.add(Settled{m.began})
	m.looked = now
	m.planNext(len(verdicts) > 0 || unsure || stalled(all), soon, now)
}

// vague reports whether a verdict depends on ranks of which nothing is known. Such verdicts are dropped if some
// processes have not answered.
func vague(v verdict.Verdict) bool {
	return v.Reason == verdict.Unknown || v.Reason != verdict.NotJoined && v.Reason != verdict.Mismatch &&
		slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool { return r.Member == "" })
}

// planNext plans the next look: soon if ranks moved a moment ago, else with growing pauses while anything is open,
// unsure or stalled.
func (m *Machine) planNext(needed, soon bool, now time.Time) {
	switch {
	case soon:
		m.backoff = soonTime
	case needed:
		m.backoff = min(max(2*m.backoff, againFirst), againMost)
	default:
		m.backoff = 0
		if m.due.IsZero() {
			return
		}
	}
	if at := now.Add(m.backoff); m.backoff > 0 && (m.due.IsZero() || at.Before(m.due)) {
		m.due = at
	}
}

// assemble makes the notes to judge: those that came, with each process's fate from the membership, and notes of the
// processes that can't answer. unsure says that the state of some processes isn't known yet, but may be soon.
func (m *Machine) assemble(notes []verdict.Note, now time.Time) (all []verdict.Note, unsure bool) {
	said := make(map[string]*verdict.Note, len(notes))
	for i := range notes {
		said[notes[i].Member] = &notes[i]
	}
	blamed := map[string]bool{} // by an open verdict, of those that died
	for _, v := range m.tracker.Open() {
		for _, r := range v.Culprits {
			blamed[r.Member] = blamed[r.Member] || v.Reason == verdict.RankDead && v.Confidence == verdict.Certain
		}
	}
	waiting := map[string]bool{} // machines with a doubted process: the processes of a lost one are reported together
	for name, r := range m.members {
		if !r.judged() {
			continue
		}
		r.observe(r.status, now) // some phases depend on time
		_, spoke := said[name]
		switch {
		case spoke && (r.phase == speaking || r.phase == silent):
			r.on(answered, now)
		case !spoke && r.phase == speaking:
			r.on(unanswered, now)
		}
		if r.phase == silent && now.Sub(r.since) < silentTime || r.phase == doubted {
			unsure = true
			waiting[r.status.Member.MachineName()] = true
		}
	}
	for name, r := range m.members {
		f, known := r.fate()
		if !known || !r.judged() || f == verdict.Unreachable && waiting[r.status.Member.MachineName()] {
			continue
		}
		s := &r.status
		var n verdict.Note
		switch own, spoke := said[name]; {
		case spoke:
			n = *own
			r.answer(own, m.began, now)
		case f == verdict.Alive:
			continue
		case r.note != nil:
			n = r.lastNote(now)
		case f == verdict.Dead && r.since.After(m.began): // nobody was asked for its tape yet
			unsure = true
			continue
		}
		identify(&n, &s.Member)
		n.Fate, n.FateAge, n.Cause, n.Told, n.Killed, n.Failed = f, 0, "", false, false, false
		if f != verdict.Alive {
			n.FateAge, n.Cause = max(now.Sub(s.Since), 0), CauseText(s)
			n.Told, n.Killed, n.Failed = s.Exit.Told(), s.Exit.Killed(), s.Exit.Code != 0
			n.Blamed = f == verdict.Dead && blamed[name]
		}
		if n.LeftFailing() {
			n.Fate = verdict.Dead
		}
		n.Leaves = !s.Exit.Known && leaves(&n)
		all = append(all, n)
	}
	return all, unsure
}

// leaves tells whether a process has left, or ended all its communicators, less than departTime ago.
func leaves(n *verdict.Note) bool {
	if n.Fate != verdict.Alive {
		return n.Fate == verdict.Departed && n.FateAge < departTime
	}
	last := departTime
	for i := range n.Slots {
		if n.Slots[i].Left == nil {
			return false
		}
		last = min(last, n.Slots[i].Left.Age)
	}
	return last < departTime
}

// doubts reports whether a look counts as unsure. Looks in a row do so for unsureTime at most.
func (m *Machine) doubts(unsure bool, now time.Time) bool {
	switch {
	case !unsure:
		m.unsure = time.Time{}
	case m.unsure.IsZero() || now.Sub(m.looked) > silentTime: // too long since the last look to be one stretch
		m.unsure = now
	case now.Sub(m.unsure) >= unsureTime:
		return false
	}
	return unsure
}

// withhold removes verdicts that must not be told yet: transport after a process was stopped or out of reach; a process
// that resumed a moment ago; a process that ended in order or canceled its calls a moment ago, as others may follow;
// while processes end in turn, the end of a rank that an open verdict explains; while processes are told to end, the
// end of one of these; and for endTime after this process or its job was told to end, anything new but the ends of
// processes before. unsure says that some of them may be told soon.
func (m *Machine) withhold(
	verdicts []verdict.Verdict, notes []verdict.Note, now time.Time,
) (told, withheld []verdict.Verdict, unsure bool) {
	open := m.tracker.Open()
	inTurn := slices.ContainsFunc(notes, func(n verdict.Note) bool {
		return n.Fate == verdict.Dead && n.FateAge < turnTime
	})
	terminating := slices.ContainsFunc(notes, func(n verdict.Note) bool { return n.Told && n.FateAge < departTime })
	terminated := func(v *verdict.Verdict) bool {
		return slices.ContainsFunc(notes, func(n verdict.Note) bool { return n.Told && v.Accuses(n.Member) })
	}
	for _, v := range open {
		if v.Reason == verdict.RankUnreachable || v.Reason == verdict.RankStopped {
			m.heals = now.Add(min(2*time.Duration(v.Age), longestPause) + healing)
		}
	}
	for _, v := range verdicts {
		known := slices.ContainsFunc(open, func(o verdict.Verdict) bool { return o.ID == v.ID })
		ending := now.Before(m.ends) && !slices.ContainsFunc(m.endedBefore, v.Accuses)
		because := func(o verdict.Verdict) bool { return v.Reason == verdict.RankDead && explained(&v, &o) }
		later := v.Reason == verdict.Transport && now.Before(m.heals) ||
			!known && (m.unsettled(&v, now) || v.Canceled(notes, cancelTime) ||
				!ending && (terminating && terminated(&v) || inTurn && slices.ContainsFunc(open, because)))
		if unsure = unsure || later; later || ending && !known {
			withheld = append(withheld, v)
		} else {
			told = append(told, v)
		}
	}
	return told, withheld, unsure
}

// unsettled reports whether a verdict is about a process that resumed a moment ago, and so had no time for its calls,
// or about one that ended in order, either a moment ago or because of the cause of another verdict that was withdrawn
// lately.
func (m *Machine) unsettled(v *verdict.Verdict, now time.Time) bool {
	because := slices.ContainsFunc(m.past, func(p withdrawn) bool { return explained(v, &p.verdict) })
	return slices.ContainsFunc(v.Culprits, func(c verdict.Rank) bool {
		r := m.members[c.Member]
		return r != nil && (r.phase == left && (because || now.Sub(r.status.Since) < departTime) ||
			r.phase == speaking && now.Sub(r.back) < resumeTime)
	})
}

// explained tells whether all culprits of v end because of o: as victims, since the processes of a hung job are often
// killed one by one, or as the culprits of a mismatch, whose calls fail as well.
func explained(v, o *verdict.Verdict) bool {
	return o.Urgent() && o.Reason != verdict.RankDead && len(v.Culprits) > 0 &&
		!slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool {
			same := func(c verdict.Rank) bool { return c.Member == r.Member }
			return !slices.ContainsFunc(o.Victims, func(w verdict.Wait) bool { return same(w.Rank) }) &&
				(o.Reason != verdict.Mismatch || !slices.ContainsFunc(o.Culprits, same))
		})
}

// keep adds the open verdicts that can't be judged now and are not known to be resolved: not all processes have
// answered, some processes that the verdict is about don't run, its victims have aborted the calls in which they
// waited, or a straggler is close to the threshold. An open verdict is over if another one now names its culprits.
func (m *Machine) keep(verdicts []verdict.Verdict, unsure bool, resolved func(*verdict.Verdict) bool,
	notes []verdict.Note, now time.Time,
) []verdict.Verdict {
	for _, o := range m.tracker.Open() {
		if slices.ContainsFunc(verdicts, func(v verdict.Verdict) bool {
			return v.ID == o.ID || accuses(&v, o.Culprits)
		}) {
			continue
		}
		if o.Reason == verdict.Straggler && now.Sub(m.held[o.ID]) < lingerTime && !o.Recovered(notes) {
			verdicts = append(verdicts, o)
		} else if (unsure || m.undecidable(&o) || o.CutShort(notes)) && !resolved(&o) {
			verdicts = slices.DeleteFunc(verdicts, func(v verdict.Verdict) bool { // o says why
				return v.Reason == verdict.Unknown && v.Comm == o.Comm && v.Seq == o.Seq
			})
			verdicts = append(verdicts, o.After(now.Sub(m.current)))
		}
	}
	return verdicts
}

// undecidable tells whether some of the processes that a verdict is about don't run or don't answer, so that it is not
// known whether it still holds.
func (m *Machine) undecidable(v *verdict.Verdict) bool {
	return concerns(v, func(name string) bool {
		r := m.members[name]
		return r != nil && (r.phase == stopped || r.phase == silent || r.phase == doubted)
	})
}

// concerns tells whether is holds of a culprit or a victim of a verdict.
func concerns(v *verdict.Verdict, is func(name string) bool) bool {
	return slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool { return is(r.Member) }) ||
		slices.ContainsFunc(v.Victims, func(w verdict.Wait) bool { return is(w.Rank.Member) })
}

// accuses tells whether a verdict has all these culprits.
func accuses(v *verdict.Verdict, some []verdict.Rank) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(r verdict.Rank) bool {
		return !slices.ContainsFunc(v.Culprits, r.Same)
	})
}

// stalled tells whether an operation or act of any process that runs stalls.
func stalled(notes []verdict.Note) bool {
	return slices.ContainsFunc(notes, func(n verdict.Note) bool {
		return n.Fate == verdict.Alive && slices.ContainsFunc(n.Slots, func(s verdict.Slot) bool {
			return s.Stalled && s.InFlight > 0 ||
				slices.ContainsFunc(s.Acts, func(a verdict.OpenAct) bool { return a.Stalled })
		})
	})
}

// met reports whether a running process is in a call on a communicator that the other process has, too, so that the
// other one's part in it counts.
func met(other *verdict.Note, notes []verdict.Note) bool {
	return slices.ContainsFunc(notes, func(n verdict.Note) bool {
		return n.Fate == verdict.Alive && slices.ContainsFunc(n.Slots, func(s verdict.Slot) bool {
			return (s.InFlight > 0 || len(s.Acts) > 0) &&
				slices.ContainsFunc(other.Slots, func(o verdict.Slot) bool { return o.Comm == s.Comm })
		})
	})
}

// release retires a process that is gone or out of reach, unless an open verdict is about it.
func (m *Machine) release(name string) {
	r := m.members[name]
	if r != nil && !slices.ContainsFunc(m.tracker.Open(), func(v verdict.Verdict) bool {
		return concerns(&v, func(other string) bool { return other == name })
	}) {
		r.on(released, r.since)
	}
}

// audience says which changes this process sends to receivers outside of the job.
type audience uint8

const (
	toNobody      audience = iota // none
	ofWithdrawals                 // withdrawals
	toAll                         // all
	toAllAgain                    // all, and the verdicts that were already open, as another process may have sent them
)

// all is toAll, or toAllAgain if another process coordinated before.
func (m *Machine) all() audience {
	if m.leads {
		return toAll
	}
	return toAllAgain
}

// holds records that verdicts were known to hold at a time.
func (m *Machine) holds(verdicts []verdict.Verdict, at time.Time) {
	for i := range verdicts {
		if old := m.held[verdicts[i].ID]; old.Before(at) {
			m.held[verdicts[i].ID] = at
		}
	}
}

// apply makes verdicts the open ones, and tells the changes. resolved says whether the cause of a withdrawn verdict is
// gone.
func (m *Machine) apply(verdicts []verdict.Verdict, to audience, resolved func(*verdict.Verdict) bool,
	now time.Time,
) {
	was := map[string]bool{}
	for _, v := range m.tracker.Open() {
		was[v.ID] = true
	}
	reads := m.tracker.Reads(verdicts)
	changes := m.tracker.Update(verdicts)
	old := now.Sub(m.current) // how old the ages of withdrawn verdicts are
	m.current = now
	m.past = slices.DeleteFunc(m.past, func(p withdrawn) bool { return now.Sub(p.at) >= pastTime })
	if len(changes) > 0 || !reads {
		m.add(Publish{m.tracker.Open()})
	}
	for _, c := range changes {
		id := c.Verdict.ID
		last := m.lastTold[id]
		delete(was, id)
		switch c.Kind {
		case verdict.Opened:
			last.since = now
			m.past = slices.DeleteFunc(m.past, func(p withdrawn) bool { return p.verdict.ID == id })
		case verdict.Withdrawn:
			v := c.Verdict.After(old)
			if c.Unresolved = !resolved(&v); c.Unresolved {
				m.past = append(m.past[max(0, len(m.past)+1-mostPast):], withdrawn{v, now})
			}
			if v.Reason == verdict.RankDead || v.Reason == verdict.RankUnreachable {
				for _, r := range v.Culprits {
					m.release(r.Member)
				}
			}
			// As it was told last: in the last look, its ranks may have been ending already.
			c.Verdict = last.verdict.After(now.Sub(last.at))
			delete(m.lastTold, id)
			delete(m.held, id)
		case verdict.Changed:
		}
		if c.Kind != verdict.Withdrawn {
			m.lastTold[id] = told{last.since, c.Verdict, now}
		}
		if to == toAllAgain && c.Kind == verdict.Withdrawn {
			// A new coordinator ends the last one's verdicts. Its own receivers end only those that they know of.
			m.add(Tell{verdict.Change{Kind: verdict.Changed, Verdict: c.Verdict}, last.since, true})
		}
		m.add(Tell{c, last.since, to >= toAll || to == ofWithdrawals && c.Kind == verdict.Withdrawn})
	}
	if to != toAllAgain {
		return
	}
	for _, v := range m.tracker.Open() {
		if was[v.ID] {
			m.add(Tell{verdict.Change{Kind: verdict.Changed, Verdict: v}, m.lastTold[v.ID].since, true})
		}
	}
}

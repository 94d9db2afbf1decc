package agent

import (
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// member is what the machine knows of one process. Its phase changes by the transitions below.
type member struct {
	status mesh.Status // as the membership has it
	phase  phase
	since  time.Time     // of the phase
	back   time.Time     // when it last ran again, after it had not run or been out of reach
	note   *verdict.Note // its last one
	at     time.Time     // of the note
	final  bool          // the process has left or is dead, and the note has all that is on its tape
}

// judged tells whether it is a process of the job, and not a carillon agent.
func (m *member) judged() bool { return !m.status.Member.Keeps() }

// phase is what a process counts as when the job is judged.
type phase uint8

const (
	speaking    phase = iota // it answers, as far as is known
	silent                   // it runs, as far as is known, and did not answer in the last look
	stopped                  // it is stopped
	doubted                  // it is unreachable, for less than lostAfter
	unreachable              // it is unreachable
	dead                     // it ended neither in order nor, as far as is known, with exit status 0
	left                     // it ended in order, or with exit status 0
	retired                  // it is dead or unreachable, had a verdict, and the job has gone on
	numPhases
)

// trigger is an event that may change a phase.
type trigger uint8

const (
	answered   trigger = iota // it answered in a look
	unanswered                // it was asked in a look, and did not answer
	runs                      // the membership says that it runs
	halted                    // … that it is stopped
	lost                      // … that it is unreachable
	longLost                  // … and has been so for lostAfter
	died                      // … that it ended
	departed                  // … that it ended in order
	released                  // no open verdict is about it
	numTriggers
)

// stay is a transition to the same phase.
const stay = numPhases

// transitions has the next phase for each phase and trigger. A retired process stays retired until it runs again, or is
// found stopped or to have left.
var transitions = [numPhases][numTriggers]phase{
	//         answered  unanswered runs      halted   lost     longLost died  departed released
	speaking:    {stay, silent, stay, stopped, doubted, unreachable, dead, left, stay},
	silent:      {speaking, stay, stay, stopped, doubted, unreachable, dead, left, stay},
	stopped:     {stay, stay, speaking, stay, doubted, unreachable, dead, left, stay},
	doubted:     {speaking, stay, speaking, stopped, stay, unreachable, dead, left, stay},
	unreachable: {speaking, stay, speaking, stopped, stay, stay, dead, left, retired},
	dead:        {stay, stay, speaking, stopped, unreachable, unreachable, stay, left, retired},
	left:        {stay, stay, speaking, stay, stay, stay, dead, stay, stay},
	retired:     {stay, stay, speaking, stopped, stay, stay, stay, left, stay},
}

// on changes the phase by a trigger.
func (m *member) on(t trigger, now time.Time) {
	if next := transitions[m.phase][t]; next != stay {
		m.phase, m.since, m.final = next, now, false
		if t == runs {
			m.back = now
		}
	}
}

const (
	// finalTime is how long the tape of a process that has left may still change.
	finalTime = time.Second
	// wholeSlots is how many slots surely fit into an answer. A longer note is cut, and so is never final.
	wholeSlots = 64
)

// answer stores a note that was asked for at the time asked.
func (m *member) answer(n *verdict.Note, asked, now time.Time) {
	m.note, m.at = n, now
	over := m.phase == dead && !asked.Before(m.since) || m.phase == left && asked.Sub(m.since) >= finalTime
	m.final = over && len(n.Slots) <= wholeSlots
}

// lastNote is the last note, with the ages of now. Its Waited are out of date, and left out.
func (m *member) lastNote(now time.Time) verdict.Note {
	n := m.note.After(now.Sub(m.at))
	n.Stale = !m.final
	for i := range n.Slots {
		n.Slots[i].Waited = nil
	}
	return n
}

// lostAfter is how long a process must be out of reach to count as unreachable: packets get lost.
const lostAfter = 2 * time.Second

// observe takes the member's status. A retired process that is unreachable since a later time than before ran in
// between.
func (m *member) observe(s mesh.Status, now time.Time) {
	if m.phase == retired && s.State == mesh.Unreachable && m.status.State == mesh.Unreachable &&
		!s.Since.Equal(m.status.Since) {
		m.on(runs, now)
	}
	m.status = s
	switch s.State {
	case mesh.Alive, mesh.Suspect:
		if m.phase != silent && m.phase != speaking {
			m.on(runs, now)
		}
	case mesh.Stopped:
		m.on(halted, now)
	case mesh.Unreachable:
		if s.Cause == mesh.CauseUntold { // only its carillon agent is gone
			if m.phase != stopped {
				m.on(runs, now)
			}
			m.on(unanswered, now)
		} else if now.Sub(s.Since) < lostAfter {
			m.on(lost, now)
		} else {
			m.on(longLost, now)
		}
	case mesh.Dead:
		m.on(died, now)
	case mesh.Left:
		m.on(departed, now)
	}
}

// fate is the phase as a note has it; false if the process's state isn't known well enough.
func (m *member) fate() (f verdict.Fate, known bool) {
	f, known = map[phase]verdict.Fate{
		speaking: verdict.Alive, stopped: verdict.Stopped, unreachable: verdict.Unreachable, dead: verdict.Dead,
		left: verdict.Departed,
	}[m.phase]
	return f, known
}

var causeTexts = map[mesh.Cause]string{
	mesh.CauseTold: "", mesh.CauseSignal: "stopped by a signal", mesh.CauseTraced: "held by a debugger",
	mesh.CauseFrozen: "its cgroup is frozen", mesh.CauseSilence: "it doesn't answer",
	mesh.CauseRefused: "its host answers, and nobody listens there",
	mesh.CauseUntold:  "the agent that told of it is gone",
}

// CauseText says how a process came to its state; empty for a process that announced that it leaves.
func CauseText(s *mesh.Status) string {
	if s.Cause == mesh.CauseExit {
		return s.Exit.How()
	}
	if text, known := causeTexts[s.Cause]; known {
		return text
	}
	return s.Cause.String()
}

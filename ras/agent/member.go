package agent

import (
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// member is what the machine knows of one process: one record, whose changes are the transitions below.
type member struct {
	status mesh.Status // as the membership has it
	phase  phase
	since  time.Time     // of the phase
	note   *verdict.Note // the last that it gave
	at     time.Time     // when
	final  bool          // it is all that its tape tells after the process has left
}

// judged tells whether it is a process of the job, of which there are notes.
func (m *member) judged() bool { return !m.status.Member.Keeps() }

// phase is what a process counts as when the job is judged.
type phase uint8

const (
	speaking    phase = iota // it answers, as far as is known
	silent                   // it runs, as far as is known, and did not give one in the last look
	stopped                  // it doesn't run
	doubted                  // it is out of reach, for too short a time to say so: packets get lost
	unreachable              // it is out of reach
	dead                     // it ended without saying so
	left                     // it ended in order
	retired                  // it is gone or out of reach, a verdict has told it, and the job has gone on
	numPhases
)

// happening is what changes a phase.
type happening uint8

const (
	answered   happening = iota // it gave a note
	unanswered                  // it was to give one in a look, and did not
	runs                        // the membership says that it runs
	halted                      // … that it is stopped
	lost                        // … that it is out of reach
	longLost                    // … and has been so for lostAfter
	died                        // … that it ended
	departed                    // … that it ended in order
	released                    // no open verdict is about it
	numHappenings
)

// stay is a transition to the same phase.
const stay = numPhases

// transitions are what each happening makes of each phase. A process that is retired stays so, whatever else is found
// out about its end, until it runs again.
var transitions = [numPhases][numHappenings]phase{
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

// on lets something happen to the process.
func (m *member) on(h happening, now time.Time) {
	if next := transitions[m.phase][h]; next != stay {
		m.phase, m.since, m.final = next, now, false
	}
}

const (
	// finalTime is how long after a process has left its tape may still change.
	finalTime = time.Second
	// wholeSlots is how many slots surely fit into an answer: of longer notes others may be left out the next time.
	wholeSlots = 64
)

// answer keeps a note that was asked for at the time asked.
func (m *member) answer(n *verdict.Note, asked, now time.Time) {
	m.note, m.at = n, now
	m.final = m.phase == left && asked.Sub(m.since) >= finalTime && len(n.Slots) <= wholeSlots
}

// before is the last note, as it reads now. Of how long others were waited for lately it says nothing any more.
func (m *member) before(now time.Time) verdict.Note {
	n := m.note.After(now.Sub(m.at))
	n.Stale = !m.final
	for i := range n.Slots {
		n.Slots[i].Waited = nil
	}
	return n
}

// lostAfter is how long a process must be out of reach to count as unreachable.
const lostAfter = 2 * time.Second

// observe takes what the membership says now. A process that was out of reach, came back and is lost anew since it was
// looked at last was running in between.
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
		if s.Cause == mesh.CauseUntold { // it runs, as far as is known
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

// fate is what the phase is in a note; false where there is none to be judged by.
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

// CauseText says how a process came to its state; nothing of one that left in order.
func CauseText(s *mesh.Status) string {
	if s.Cause == mesh.CauseExit {
		return s.Exit.How()
	}
	if text, known := causeTexts[s.Cause]; known {
		return text
	}
	return s.Cause.String()
}

package mesh

import (
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// State is what is known of a member.
type State uint8

// The states. Left, and Dead as a witness saw it, are final.
const (
	Alive       State = iota // it answers
	Suspect                  // it has not answered for a short time, or it is running but does not answer
	Stopped                  // its process exists and does not run: SIGSTOP, a debugger, a frozen cgroup
	Unreachable              // it does not answer, and no member that could see its process does
	Dead                     // its process ended without saying so, and did not exit with 0 as far as is known
	Left                     // it said that it leaves, or its process exited with 0
)

// Ended is the state of a member whose process ended in this way without saying that it leaves.
func Ended(exit process.Exit) State {
	if exit.Known && !exit.Failed() {
		return Left
	}
	return Dead
}

var stateNames = [...]string{"alive", "suspect", "stopped", "unreachable", "dead", "left"}

// String is the state's name: "alive".
func (s State) String() string { return stateNames[s] }

func (s State) running() bool { return s == Alive || s == Suspect }

func (s State) gone() bool { return s == Dead || s == Left }

// Cause is how an event is known.
type Cause uint8

// The causes.
const (
	CauseTold    Cause = iota // the member said so itself, by joining or leaving
	CauseExit                 // the kernel reported its exit to a process of its host
	CauseSignal               // its threads are stopped by a signal
	CauseTraced               // a debugger holds it
	CauseFrozen               // its cgroup is frozen
	CauseRuns                 // a process of its host sees that it is running
	CauseSilence              // it did not answer
	// CauseRefused: its host answers but refuses connections to its port. A rejecting firewall looks the same, so a
	// member that is dead for this cause alone may come back.
	CauseRefused
	CauseAnswers  // it answers again
	CauseReplaced // another mesh of the same process took its place
	CauseUntold   // the carillon agent that watched it is gone
	numCauses
)

var causeNames = [numCauses]string{
	"told", "exit", "signal", "traced", "frozen", "runs", "silence", "refused", "answers", "replaced",
	"its agent is gone",
}

// String is the cause's name: "exit".
func (c Cause) String() string { return causeNames[c] }

// Status is what is known of a member, since when (by this process's clock), and how.
type Status struct {
	Member Member
	State  State
	Since  time.Time
	Cause  Cause
	Exit   process.Exit
	// By is the name of the member that saw it; empty if it was this one.
	By string
}

// Event is what happened to a member: it joined, or is in another state than before.
type Event struct {
	Status
	Joined bool
	// Passing says that only a suspicion of an Alive member ends: it was neither stopped nor out of reach.
	Passing bool
}

// What happened, in a word: "joined", "resumed" for a member that runs or answers again, or its state since.
func (e Event) What() string {
	switch {
	case e.Joined:
		return "joined"
	case e.State == Alive:
		return "resumed"
	default:
		return e.State.String()
	}
}

// String is one line for a log: "rank 3 (host-4711) dead: killed".
func (e Event) String() string {
	s := fmt.Sprintf("%v %s", e.Member, e.What())
	if e.Cause != CauseTold {
		s += ": " + e.Cause.String()
	}
	if e.Exit.Known {
		s += ", " + e.Exit.String()
	}
	if e.By != "" {
		s += ", seen by " + e.By
	}
	return s
}

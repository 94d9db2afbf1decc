package verdict

import "github.com/carillon-rt/carillon/lifecycle/words"

// Reason is why a job doesn't move.
type Reason uint8

// The reasons.
const (
	ReasonNone Reason = iota
	// RankDead: the process ended, and did not leave in order.
	RankDead
	// RankStopped: SIGSTOP, a debugger, a frozen cgroup.
	RankStopped
	// RankUnreachable: the process doesn't answer over the network, and is not known to be dead.
	RankUnreachable
	// NotEntered: the rank is alive, and has not made the call that the others are in.
	NotEntered
	// NotJoined: the rank has not come to an init or a split.
	NotJoined
	// Mismatch: the ranks made different calls under one number, or the sides of a message have different sizes.
	Mismatch
	// Deadlock: a cycle of ranks that wait for each other.
	Deadlock
	// Transport: all ranks have entered, and no data moves between two of them.
	Transport
	// Straggler: the job moves, but keeps waiting for one rank.
	Straggler
	// UnfinishedGroup: the rank has a group that it doesn't end, or a group job that it doesn't complete.
	UnfinishedGroup
	// StreamBlocked: the rank has made the call, and its device's stream is busy with earlier work.
	StreamBlocked
	// Unknown: the cause is not known; the verdict says what is missing.
	Unknown
	numReasons
)

var reasonNames = [numReasons]string{
	"none", "rank_dead", "rank_stopped", "rank_unreachable", "not_entered", "not_joined", "mismatch", "deadlock",
	"transport", "straggler", "unfinished_group", "stream_blocked", "unknown",
}

// Reasons lists all reasons that a verdict can have.
func Reasons() []Reason {
	all := make([]Reason, 0, numReasons-1)
	for r := RankDead; r < numReasons; r++ {
		all = append(all, r)
	}
	return all
}

// String is the reason's name, as events, metrics and alerts have it: "rank_dead".
func (r Reason) String() string { return words.Name("reason", reasonNames[:], r) }

// MarshalText is String.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Reason) UnmarshalText(text []byte) (err error) {
	*r, err = words.Named[Reason]("reason", reasonNames[:], string(text))
	return err
}

// Confidence is how much a verdict can be relied on.
type Confidence uint8

// The confidences.
const (
	// Possible: other causes fit the notes as well.
	Possible Confidence = iota
	// Likely: no note contradicts it, but a note that would prove it is missing.
	Likely
	// Certain: it follows from the notes of the ranks concerned.
	Certain
)

var confidenceNames = [...]string{"possible", "likely", "certain"}

// String is the confidence's name: "likely".
func (c Confidence) String() string { return words.Name("confidence", confidenceNames[:], c) }

// MarshalText is String.
func (c Confidence) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Confidence) UnmarshalText(text []byte) (err error) {
	*c, err = words.Named[Confidence]("confidence", confidenceNames[:], string(text))
	return err
}

// Fate is the state of a process.
type Fate uint8

// The fates.
const (
	// Alive: it answers, or is known to run.
	Alive Fate = iota
	// Dead: it ended, and did not leave in order.
	Dead
	// Stopped: it exists and doesn't run.
	Stopped
	// Unreachable: it doesn't answer over the network.
	Unreachable
	// Departed: it ended in order.
	Departed
)

var fateNames = [...]string{"alive", "dead", "stopped", "unreachable", "left"}

// String is the fate's name: "alive".
func (f Fate) String() string { return words.Name("fate", fateNames[:], f) }

// MarshalText is String.
func (f Fate) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (f *Fate) UnmarshalText(text []byte) (err error) {
	*f, err = words.Named[Fate]("fate", fateNames[:], string(text))
	return err
}

// ended reports whether a process with this fate is known to have ended.
func (f Fate) ended() bool { return f == Dead || f == Departed }

// reason is the reason of a verdict on a process with this fate.
func (f Fate) reason() Reason {
	return [...]Reason{Dead: RankDead, Departed: RankDead, Stopped: RankStopped, Unreachable: RankUnreachable}[f]
}

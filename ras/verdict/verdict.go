package verdict

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Verdict is one cause, with all ranks that wait because of it.
type Verdict struct {
	// ID names the cause: verdicts of different moments with one ID are the same one.
	ID         string     `json:"id"`
	Reason     Reason     `json:"reason"`
	Confidence Confidence `json:"confidence"`
	// Culprits are the ranks at fault, in order; empty if none is known.
	Culprits []Rank `json:"culprits,omitempty"`
	// Comm, Call and Seq are the call that has waited longest. Comm is zero while no rank waits.
	Comm lifecycle.CommID `json:"comm,omitzero"`
	Name string           `json:"comm_name,omitempty"`
	Call string           `json:"call,omitempty"`
	Seq  uint64           `json:"seq,omitempty"`
	// Age is how long the verdict has held, as far as is known.
	Age Age `json:"age_seconds"`
	// Text is a sentence for a person. Evidence is sentences that support it.
	Text     Text   `json:"text"`
	Evidence []Text `json:"evidence,omitempty"`
	// Victims are the ranks that wait, longest first.
	Victims []Wait `json:"victims,omitempty"`
}

// Rank names one rank, with its process.
type Rank struct {
	Job    int    `json:"rank"`      // in the job; -1 if it isn't known
	Comm   int    `json:"comm_rank"` // in the verdict's communicator; -1 if it is in none or it isn't known
	Member string `json:"member,omitempty"`
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`

	comm string // the communicator that Comm is a rank of, as a sentence has it
}

// String is "rank 3", or the best other name that is known.
func (r Rank) String() string {
	switch {
	case r.Job >= 0:
		return "rank " + strconv.Itoa(r.Job)
	case r.Comm >= 0 && r.comm != "":
		return fmt.Sprintf("rank %d of %s", r.Comm, r.comm)
	case r.Comm >= 0:
		return fmt.Sprintf("rank %d of the communicator", r.Comm)
	default:
		return "process " + r.Process()
	}
}

// Process is HOST-PID, by Host and PID: it is the same by the notes of a job that runs and, later, by its tapes. Where
// these are not known, it is Member.
func (r Rank) Process() string {
	if r.Host != "" && r.PID > 0 {
		return fmt.Sprintf("%s-%d", words.Line(r.Host), r.PID)
	}
	return r.Member
}

// in is String, with the rank in the communicator if that is another number.
func (r Rank) in() string {
	if r.Job >= 0 && r.Comm >= 0 && r.Comm != r.Job && r.comm != "" {
		return fmt.Sprintf("rank %d (%d on %s)", r.Job, r.Comm, r.comm)
	}
	return r.String()
}

// Same tells whether two are the same rank of the job, in whichever communicators.
func (r Rank) Same(o Rank) bool { return r.Member == o.Member && r.Job == o.Job }

// Wait is one rank's part in a call that doesn't end.
type Wait struct {
	Rank Rank             `json:"rank"`
	Comm lifecycle.CommID `json:"comm"`
	Name string           `json:"comm_name,omitempty"`
	Call string           `json:"call"`
	Seq  uint64           `json:"seq,omitempty"`
	Age  Age              `json:"age_seconds"`
	// Ended tells that the rank's process ended while it waited, and not because its call had failed.
	Ended bool `json:"ended,omitempty"`
}

// Same tells whether two are of the same rank in the same call.
func (w Wait) Same(o Wait) bool {
	return w.Rank.Same(o.Rank) && w.Comm == o.Comm && w.Call == o.Call && w.Seq == o.Seq
}

// maxSuspects is how many waiting ranks can be Suspects.
const maxSuspects = 2

// Suspects are the ranks that a person would look at next: the culprits or, if none is known, the ranks of different
// processes that have waited longest.
func (v *Verdict) Suspects() (ranks []Rank) {
	if len(v.Culprits) > 0 {
		return v.Culprits
	}
	for _, w := range v.Victims {
		same := func(r Rank) bool { return r.Member == w.Rank.Member }
		if len(ranks) < maxSuspects && !w.Ended && !slices.ContainsFunc(ranks, same) {
			ranks = append(ranks, w.Rank)
		}
	}
	return ranks
}

// CulpritNumbers lists the culprits by their ranks in the job, as words.Numbers does: "3", "2 and 5". It is empty if
// none is known by its rank in the job.
func (v *Verdict) CulpritNumbers() string {
	var numbers []int
	for _, r := range v.Culprits {
		if r.Job >= 0 {
			numbers = append(numbers, r.Job)
		}
	}
	return words.Numbers(numbers)
}

// setID makes the verdict's ID from its reason and its culprits; for a mismatch, or if no culprit is known, from its
// reason and the meeting at which it shows.
func (v *Verdict) setID() {
	if v.Reason == Mismatch || len(v.Culprits) == 0 {
		v.ID = hash(v.Reason, v.Comm, v.Seq)
		return
	}
	v.ID = hash(v.Reason, names(v.Culprits))
}

// names identifies a set of ranks, whatever their order: a cycle may be found at any of its ranks. All agents name a
// rank alike: the name has no host, as an agent may not have been told the host of a container. A post-mortem uses the
// same name for a rank that has a number in the job.
func names(ranks []Rank) []string {
	all := make([]string, 0, len(ranks))
	for _, r := range ranks {
		if r.Job >= 0 {
			all = append(all, fmt.Sprintf("%d/%d", r.PID, r.Job))
		} else {
			all = append(all, fmt.Sprintf("%s/%d", r.Member, r.Comm))
		}
	}
	slices.Sort(all)
	return all
}

func hash(parts ...any) string {
	h := sha256.New()
	fmt.Fprintln(h, parts...)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Urgent reports whether somebody must act now: the job stands still. A straggler, a cause that isn't known, and a
// verdict that is only possible may wait. Everything that shows verdicts or sends alerts uses this.
func (v *Verdict) Urgent() bool {
	return v.Reason != Straggler && v.Reason != Unknown && v.Confidence != Possible
}

// After is the verdict as it reads d later, if it still holds.
func (v Verdict) After(d time.Duration) Verdict {
	v.Age += Age(d)
	v.Text = v.Text.After(d)
	v.Evidence = slices.Clone(v.Evidence)
	for i := range v.Evidence {
		v.Evidence[i] = v.Evidence[i].After(d)
	}
	v.Victims = slices.Clone(v.Victims)
	for i := range v.Victims {
		v.Victims[i].Age += Age(d)
	}
	return v
}

// String is the reason and the sentence.
func (v *Verdict) String() string { return v.Reason.String() + ": " + v.Text.String() }

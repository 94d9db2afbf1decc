package verdict

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Verdict is one cause, with all who wait because of it.
type Verdict struct {
	Reason     Reason     `json:"reason"`
	Confidence Confidence `json:"confidence"`
	// Culprits are the ranks at fault, in order; of a deadlock those in the cycle, in its order; empty where nobody is
	// known to be.
	Culprits []Rank `json:"culprits,omitempty"`
	// Whole is the ID of the verdict of which this one goes on with only some of the culprits, or with more of them; empty if
	// it has the same.
	Whole string `json:"whole,omitempty"`
	// Comms are the communicators that processes which ended, or are out of reach, were in, as far as that is known, the first 64.
	Comms []lifecycle.CommID `json:"culprit_comms,omitempty"`
	// Comm and Call are where it shows: the call that has waited longest. The zero Comm means that nobody waits yet.
	Comm lifecycle.CommID `json:"comm,omitzero"`
	Name string           `json:"comm_name,omitempty"`
	Call string           `json:"call,omitempty"`
	Seq  uint64           `json:"seq,omitempty"`
	// Age is since when, as far as that is known.
	Age Age `json:"age_seconds"`
	// Text is a sentence for a person. Evidence is what it rests on, a sentence each.
	Text     string   `json:"text"`
	Evidence []string `json:"evidence,omitempty"`
	// Victims are those who wait, longest first.
	Victims []Wait `json:"victims,omitempty"`
}

// Rank is one rank, as people and machines find it.
type Rank struct {
	Job    int    `json:"rank"`      // in the job; -1 if it isn't known
	Comm   int    `json:"comm_rank"` // in the verdict's communicator; -1 if it is in none or it isn't known
	Member string `json:"member,omitempty"`
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
}

// String is "rank 3", with the place that is known best.
func (r Rank) String() string {
	switch {
	case r.Job >= 0:
		return "rank " + strconv.Itoa(r.Job)
	case r.Comm >= 0:
		return "rank " + strconv.Itoa(r.Comm) + " of the communicator"
	default:
		return "process " + r.Member
	}
}

// Wait is one rank's part in a call that doesn't end.
type Wait struct {
	Rank Rank             `json:"rank"`
	Comm lifecycle.CommID `json:"comm"`
	Name string           `json:"comm_name,omitempty"`
	Call string           `json:"call"`
	Seq  uint64           `json:"seq,omitempty"`
	Age  Age              `json:"age_seconds"`
}

// ID names the cause: verdicts of different moments with one ID are the same one. It depends on the reason, on whose
// fault it is, and, where it is nobody's, on where it shows.
func (v *Verdict) ID() string {
	if v.Whole != "" {
		return v.Whole
	}
	h := sha256.New()
	fmt.Fprintln(h, v.Reason)
	names := make([]string, 0, len(v.Culprits))
	for _, c := range v.Culprits {
		name := c.Member + "/" + strconv.Itoa(c.Job)
		if c.Job < 0 { // else the same one, seen from whichever communicator
			name += "/" + strconv.Itoa(c.Comm)
		}
		names = append(names, name)
	}
	slices.Sort(names) // a cycle may be found at any of its ranks
	fmt.Fprintln(h, names)
	switch v.Reason {
	case RankDead, RankStopped, RankUnreachable, Straggler: // whatever waits for it, now and later
	default:
		if len(names) == 0 || v.Reason == Mismatch {
			fmt.Fprintln(h, v.Comm, v.Seq)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Urgent tells whether somebody must act now: a job that stands still costs money until then. One that is slow, or of
// which not enough is known, may wait. Everything that shows a verdict, or alerts with one, goes by this.
func (v *Verdict) Urgent() bool {
	return v.Reason != Straggler && v.Reason != Unknown && v.Confidence != Possible
}

// String is the reason and the sentence.
func (v *Verdict) String() string { return v.Reason.String() + ": " + v.Text }

// ranksText lists ranks as a person would: "rank 3", "ranks 0 to 2 and 5".
func ranksText(ranks []Rank) string {
	if len(ranks) == 0 {
		return "no rank"
	}
	if len(ranks) == 1 {
		return ranks[0].String()
	}
	var numbers []int
	job := !slices.ContainsFunc(ranks, func(r Rank) bool { return r.Job < 0 })
	for _, r := range ranks {
		switch {
		case job:
			numbers = append(numbers, r.Job)
		case r.Comm >= 0:
			numbers = append(numbers, r.Comm)
		}
	}
	if len(numbers) == len(ranks) {
		text := "ranks " + words.Numbers(numbers)
		if !job {
			text += " of the communicator"
		}
		return text
	}
	all := make([]string, len(ranks))
	for i, r := range ranks {
		all[i] = r.String()
	}
	return words.List(all)
}

// byRank orders ranks as people count them.
func byRank(a, b Rank) int {
	return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Member, b.Member))
}

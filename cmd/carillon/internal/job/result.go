package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Outcome is how one rank ended.
type Outcome struct {
	Rank, PID int
	process.Exit
	Asked unix.Signal   // the launcher's signal to end it; 0 if it ended by itself
	After time.Duration // since its start
}

func (o Outcome) how() string {
	switch {
	case o.Signal != 0 && o.Signal == o.Asked:
		return "ended by the launcher's " + unix.SignalName(o.Signal)
	case o.Signal != 0 && o.Core:
		return "killed by " + unix.SignalName(o.Signal) + " (core dumped)"
	case o.Signal != 0:
		return "killed by " + unix.SignalName(o.Signal)
	case o.Code != 0 && o.Asked != 0:
		return "exited with " + strconv.Itoa(o.Code) + " on the launcher's " + unix.SignalName(o.Asked)
	default:
		return "exited with " + strconv.Itoa(o.Code)
	}
}

func (o Outcome) verb(plural bool) string {
	switch {
	case o.Signal == 0:
		return " "
	case plural:
		return " were "
	default:
		return " was "
	}
}

// Result is how a job ended on this host.
type Result struct {
	// Outcomes has every rank that was started, by rank.
	Outcomes []Outcome

	// First is the rank whose failure ended the job: the first to fail or, with Config.MinRanks, the first whose
	// failure left too few ranks. It is nil if the remaining ranks ended without failure.
	First *Outcome

	// Lost are the ranks that failed earlier, without ending the job, in the order of their failures.
	Lost []*Outcome

	// Took is the time from the start of the first rank to the end of the last.
	Took time.Duration

	// OutputLost is the error of writing the ranks' output, if any. It ended the job.
	OutputLost error
}

// ExitCode is the launcher's exit code: 0, or that of the rank whose failure ended the job (128 and the signal's number
// if it was killed), or 141, as by SIGPIPE, if the job ended because its output was lost.
func (r *Result) ExitCode() int {
	switch {
	case r.OutputLost != nil && (r.First == nil || r.First.Asked != 0):
		return 128 + int(unix.SIGPIPE)
	case r.First != nil:
		return r.First.ShellCode()
	default:
		return 0
	}
}

// String says in one sentence which rank failed first and how, and how the others ended.
func (r *Result) String() string {
	if r.First == nil {
		return r.well()
	}
	f := r.First
	if all := r.ranks(); len(all) > 1 && r.allLike(*f) {
		return fmt.Sprintf("%s%s%s after %s", words.Ranks(all), f.verb(true), f.how(), words.Round(r.Took))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d (pid %d)%s%s after %s", f.Rank, f.PID, f.verb(false), f.how(), words.Round(f.After))

	// The others, grouped by how they ended, in the order of their lowest ranks.
	groups := map[string][]int{}
	for _, o := range r.Outcomes {
		if o.Rank != f.Rank {
			groups[o.how()] = append(groups[o.how()], o.Rank)
		}
	}
	for _, o := range r.Outcomes {
		if ranks := groups[o.how()]; len(ranks) > 0 && ranks[0] == o.Rank {
			fmt.Fprintf(&b, "; %s%s%s", words.Ranks(ranks), o.verb(len(ranks) > 1), o.how())
		}
	}
	return b.String()
}

func (r *Result) well() string {
	survivors := slices.DeleteFunc(r.ranks(), func(rank int) bool {
		return slices.ContainsFunc(r.Lost, func(o *Outcome) bool { return o.Rank == rank })
	})
	var b strings.Builder
	fmt.Fprintf(&b, "%s ended well after %s", words.Ranks(survivors), words.Round(r.Took))
	for _, o := range r.Lost {
		fmt.Fprintf(&b, "; rank %d (pid %d) was lost: %s after %s", o.Rank, o.PID, o.how(), words.Round(o.After))
	}
	return b.String()
}

func (r *Result) ranks() []int {
	ranks := make([]int, len(r.Outcomes))
	for i, o := range r.Outcomes {
		ranks[i] = o.Rank
	}
	return ranks
}

// allLike tells whether all ranks ended in the same way, by signals from the launcher.
func (r *Result) allLike(first Outcome) bool {
	return !slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return o.Asked == 0 || o.how() != first.how() })
}

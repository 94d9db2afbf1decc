package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// Schema is the version of the documents under /api/v1. A later version under the same path only adds fields.
const Schema = 1

// Snapshot is the state of the job at a moment, as one of its processes knows it: the document at /api/v1/ras. Once
// published, it is shared and must not be modified.
type Snapshot struct {
	// Time is when it was taken. It isn't part of the ETag.
	Time time.Time `json:"-"`

	// The process that took it: its job, its rank there, and where it runs.
	Job  string `json:"job,omitempty"`
	Rank int    `json:"rank"`
	Size int    `json:"size"` // ranks of the job
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`

	// Ranks are the job's processes, by rank; for an agent, those of all its jobs.
	Ranks []Rank `json:"ranks"`
	// Comms are the communicators of the process that took the snapshot; for an agent, those of the processes that it
	// follows.
	Comms []Comm `json:"comms"`
	// Unwatched says why, to this process's knowledge, RAS doesn't watch the job: then the absence of verdicts means
	// nothing. Empty: RAS watches it.
	Unwatched string `json:"unwatched,omitempty"`
	// Verdicts are the open ones.
	Verdicts []Verdict `json:"verdicts"`
	// Conditions are those of the process that took the snapshot, the silent ones last.
	Conditions []Condition `json:"conditions"`
}

// Rank is one process of the job.
type Rank struct {
	Job    string    `json:"job,omitempty"`
	Rank   int       `json:"rank"`  // in the job; -1 if it has none
	State  string    `json:"state"` // "alive", "suspect", "dead", "stopped", "unreachable" or "left"
	Since  time.Time `json:"since,omitzero"`
	Member string    `json:"member,omitempty"` // its name in the membership, with that of its machine
	Host   string    `json:"host,omitempty"`
	PID    int       `json:"pid,omitempty"`
	Text   string    `json:"text,omitempty"` // how it came to its state: "killed by signal 9"
	URL    string    `json:"url,omitempty"`  // where its health endpoint answers other hosts; empty if it doesn't
}

// Process is the rank's process, as verdicts name it.
func (r *Rank) Process() string {
	return verdict.Rank{Member: r.Member, Host: r.Host, PID: r.PID}.Process()
}

// Running tells whether the rank's process is running, as far as is known.
func (r *Rank) Running() bool { return r.State == "alive" || r.State == "suspect" }

// Verdict is an open verdict.
type Verdict struct {
	Job   string    `json:"job,omitempty"`
	ID    string    `json:"id"`    // unique in the job
	Since time.Time `json:"since"` // when it was reached
	verdict.Verdict
}

// Names tells whether the verdict has a rank's process among its culprits. Ranks of other jobs may have the same
// numbers.
func (v *Verdict) Names(r *Rank) bool { return v.Job == r.Job && r.Member != "" && v.Accuses(r.Member) }

// Jobs are the names of the jobs that the snapshot is about, in order.
func (s *Snapshot) Jobs() []string {
	jobs := map[string]bool{s.Job: true}
	for i := range s.Ranks {
		jobs[s.Ranks[i].Job] = true
	}
	for i := range s.Comms { // without RAS, no ranks are known
		jobs[s.Comms[i].Job] = true
	}
	delete(jobs, "")
	return slices.Sorted(maps.Keys(jobs))
}

// RankName is a rank of a communicator for people: "rank 3" if the communicator has all ranks of the job, by their
// numbers there, as far as the process that took the snapshot knows, and else `rank 3 of "dp"`.
func (s *Snapshot) RankName(c Comm, rank int32) string {
	if c.Parent.IsZero() && s.Rank >= 0 && c.Rank == s.Rank && c.Size == s.Size {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("rank %d of %q", rank, cmp.Or(c.Name, c.ID.Short()))
}

// SeverityOf is the severity of a verdict, and of its condition: Critical if it is urgent, else Warning.
func SeverityOf(v *verdict.Verdict) bus.Severity {
	if v.Urgent() {
		return bus.Critical
	}
	return bus.Warning
}

// Status is the worst severity that is shown: "critical", "warning" or "ok".
func (s *Snapshot) Status() string {
	worst := bus.Info
	for i := range s.Verdicts {
		worst = max(worst, SeverityOf(&s.Verdicts[i].Verdict))
	}
	for i := range s.Conditions {
		if c := s.Conditions[i]; !c.Silent() {
			worst = max(worst, c.Severity)
		}
	}
	if worst == bus.Info {
		return "ok"
	}
	return worst.String()
}

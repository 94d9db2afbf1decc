package health

import (
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// Schema is the version of the documents under /api/v1. A later one of the same path only adds fields.
const Schema = 1

// Snapshot is what is known of the job at a moment, by one of its processes. It is what /api/v1/ras answers with.
// Once published, it is shared by all who read it and modified by nobody.
type Snapshot struct {
	// Time is when it was taken. It isn't part of the ETag: a snapshot that differs in nothing else is the same.
	Time time.Time `json:"-"`

	// The process that tells it: its job, its rank there, and where it is.
	Job  string `json:"job,omitempty"`
	Rank int    `json:"rank"`
	Size int    `json:"size"` // ranks of the job
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`

	// Ranks are the job's processes, by rank.
	Ranks []Rank `json:"ranks"`
	// Comms are the communicators of the process that tells it.
	Comms []Comm `json:"comms"`
	// Unwatched says why nobody looks for what holds the job up, as far as this process knows: then it is no good sign
	// that there is no verdict. Empty: it is looked for.
	Unwatched string `json:"unwatched,omitempty"`
	// Verdicts are those that are open.
	Verdicts []Verdict `json:"verdicts"`
	// Conditions are those of the process that tells it, the silent ones last.
	Conditions []Condition `json:"conditions"`
}

// Rank is one process of the job.
type Rank struct {
	Rank   int       `json:"rank"`  // in the job; -1 if it has none
	State  string    `json:"state"` // "alive", "suspect", "dead", "stopped", "unreachable" or "left"
	Since  time.Time `json:"since,omitzero"`
	Member string    `json:"member,omitempty"` // its name in the membership
	Host   string    `json:"host,omitempty"`
	PID    int       `json:"pid,omitempty"`
	Text   string    `json:"text,omitempty"` // how it came to its state: "killed by signal 9"
	URL    string    `json:"url,omitempty"`  // where its health endpoint answers other hosts; empty if it doesn't
}

// Verdict is an open verdict.
type Verdict struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"` // when it was reached
	verdict.Verdict
}

// SeverityOf is that of a verdict, and of the condition that it is: Critical where somebody must act now, else Warning.
func SeverityOf(v *verdict.Verdict) bus.Severity {
	if v.Urgent() {
		return bus.Critical
	}
	return bus.Warning
}

// Status is the worst that is shown: "critical", "warning" or "ok".
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

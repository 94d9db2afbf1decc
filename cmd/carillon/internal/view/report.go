package view

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Report is the known state of a job at a moment.
type Report struct {
	Schema int       `json:"schema"`
	Status string    `json:"status"` // "ok", "warning", "critical"; "unknown" without an answer or RAS
	Time   time.Time `json:"time"`
	Heard  time.Time `json:"heard,omitzero"` // the time of the last snapshot
	Job    string    `json:"job"`
	// Jobs are the names of the jobs if there are several, as with an agent. Job is then empty, and Size 0.
	Jobs []string `json:"jobs,omitempty"`
	Size int      `json:"size"` // ranks of the job
	Told []int    `json:"told"` // the ranks that have answered at least once
	// Stale are the ranks of Told that no longer answer; the report shows their last state.
	Stale []Stale `json:"stale,omitempty"`
	// Unwatched says why no process diagnoses the job; empty if one does.
	Unwatched string `json:"unwatched,omitempty"`

	Verdicts   []health.Verdict `json:"verdicts"`
	Ranks      []health.Rank    `json:"ranks"`
	Comms      []Comm           `json:"comms"`
	Conditions []Condition      `json:"conditions"`
	// Problems say what is missing from the report, and why, such as a process that doesn't answer.
	Problems []string `json:"problems,omitempty"`
}

// Condition is a condition with its ranks.
type Condition struct {
	health.Condition
	Ranks []int `json:"ranks"`
	// StaleAge is its age if none of its ranks still answers.
	StaleAge float64 `json:"stale_age_seconds,omitempty"`
}

// CodeUnknown is the exit code of carillon status if there is no such job, no process answers, RAS is off, or the
// command was used wrongly.
const CodeUnknown = 3

const (
	statusOK       = "ok"
	statusWarning  = "warning"
	statusCritical = "critical"
	statusUnknown  = "unknown"
)

// Code is the exit code for the report's status.
func (r *Report) Code() int {
	return slices.Index([]string{statusOK, statusWarning, statusCritical, statusUnknown}, r.Status)
}

// status is the worst status of verdicts, conditions and ranks. A rank that isn't running is only a warning, even
// without a verdict on it, as the job may continue without it. A job that no process diagnoses is unknown, not ok.
func (r *Report) status() string {
	known := health.Snapshot{Verdicts: r.Verdicts}
	for _, c := range r.Conditions {
		known.Conditions = append(known.Conditions, c.Condition)
	}
	down := func(k health.Rank) bool { return slices.Contains([]string{"dead", "stopped", "unreachable"}, k.State) }
	switch status := known.Status(); {
	case status != statusOK:
		return status
	case len(r.Told) == 0:
		return statusUnknown
	case slices.ContainsFunc(r.Ranks, down):
		return statusWarning
	case r.Unwatched != "":
		return statusUnknown
	}
	return statusOK
}

// JSON is the report as an indented object, without control characters.
func (r *Report) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	// encoding/json escapes characters below the space. Other control characters can occur only in strings, so that
	// escaping them doesn't change the structure.
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = words.Line(line)
	}
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

package view

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
)

// Report is what is known of a job at a moment.
type Report struct {
	Schema int       `json:"schema"`
	Status string    `json:"status"` // "ok", "warning", "critical"; "unknown" without an answer or RAS
	Time   time.Time `json:"time"`
	Heard  time.Time `json:"heard,omitzero"` // when any process told anything last
	Job    string    `json:"job"`
	Size   int       `json:"size"` // ranks of the job
	Told   []int     `json:"told"` // the ranks that answered, be it long ago
	// Stale are those of them that can't be asked any more. What they told is shown as it was.
	Stale []Stale `json:"stale,omitempty"`
	// Unwatched says why no process looks for what holds the job up; empty if one does.
	Unwatched string `json:"unwatched,omitempty"`

	Verdicts   []health.Verdict `json:"verdicts"`
	Ranks      []health.Rank    `json:"ranks"`
	Comms      []Comm           `json:"comms"`
	Conditions []Condition      `json:"conditions"`
	// Problems say what is missing, and why: a process that doesn't answer.
	Problems []string `json:"problems,omitempty"`
}

// Condition is a condition with the ranks that it is one of.
type Condition struct {
	health.Condition
	Ranks []int `json:"ranks"`
	// StaleAge is how old it is, if none of those who told it can be asked any more.
	StaleAge float64 `json:"stale_age_seconds,omitempty"`
}

// CodeUnknown is the exit code of carillon status for no such job, nobody answers, nobody looks, or a wrong call.
const CodeUnknown = 3

const (
	statusOK       = "ok"
	statusWarning  = "warning"
	statusCritical = "critical"
	statusUnknown  = "unknown"
)

// Code is the exit code that tells the report's status.
func (r *Report) Code() int {
	return slices.Index([]string{statusOK, statusWarning, statusCritical, statusUnknown}, r.Status)
}

// status is the worst that is shown. A rank that doesn't run, where no verdict says so, is a warning: a job may go on
// without it. Where nobody looks for what holds it up, it isn't known to be healthy.
func (r *Report) status() string {
	status := statusOK
	if r.Unwatched != "" || len(r.Told) == 0 {
		status = statusUnknown
	}
	for i := range r.Verdicts {
		switch health.SeverityOf(&r.Verdicts[i].Verdict) {
		case bus.Critical:
			return statusCritical
		case bus.Warning:
			status = statusWarning
		case bus.Info:
		}
	}
	if len(r.Told) == 0 {
		return status
	}
	for i := range r.Conditions {
		switch c := &r.Conditions[i]; {
		case c.Silent():
		case c.Severity == bus.Critical:
			return statusCritical
		case c.Severity == bus.Warning:
			status = statusWarning
		}
	}
	for i := range r.Ranks {
		switch r.Ranks[i].State {
		case "dead", "stopped", "unreachable":
			status = statusWarning
		}
	}
	return status
}

// JSON is the report as an object, indented. A terminal obeys nothing in it.
func (r *Report) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	// encoding/json escapes what is below a blank. Other characters that a terminal obeys are only in strings, too, so
	// that to escape them there changes no meaning.
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = words.Line(line)
	}
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// staleAfter is the age from which a snapshot is stale, even if its process is running: watch asks each process about
// once a minute.
const staleAfter = 90 * time.Second

// quietAfter is the time without any snapshot after which the whole report is stale.
const quietAfter = 30 * time.Second

// Stale marks the snapshot of a process that no longer answers.
type Stale struct {
	Rank int     `json:"rank"`
	Host string  `json:"host,omitempty"`
	Age  float64 `json:"age_seconds"` // of the snapshot
	Why  string  `json:"why"`         // "unreachable", "stopped", "suspect", "no answer", "not asked"
}

func (v *View) staleness(now time.Time, key rankKey, p *part) (Stale, bool) {
	s := Stale{Rank: p.Rank, Host: key.host, Age: now.Sub(p.at).Seconds()}
	switch state := v.ranks[key].State; {
	case state == "unreachable" || state == "stopped" || p.unanswered && state == "suspect":
		s.Why = state
	case p.unanswered:
		s.Why = "no answer"
	case now.Sub(p.at) > staleAfter:
		s.Why = "not asked"
	default:
		return s, false
	}
	return s, true
}

// Unanswered records that the process of a snapshot no longer answers.
func (v *View) Unanswered(of *health.Snapshot) {
	if p := v.told[keyOf(of)]; p != nil {
		p.unanswered = true
	}
}

// StaleText names stale ranks and the ages of their snapshots: "rank 3 (unreachable), last answer 42s ago".
func StaleText(all []Stale) string {
	ranks, ages := map[string][]int{}, map[string][]float64{}
	var order []string
	for _, s := range all {
		if ranks[s.Why] == nil {
			order = append(order, s.Why)
		}
		ranks[s.Why], ages[s.Why] = append(ranks[s.Why], s.Rank), append(ages[s.Why], s.Age)
	}
	for i, why := range order {
		age, most := ageText(seconds(slices.Min(ages[why]))), ageText(seconds(slices.Max(ages[why])))
		if age != most {
			age += " to " + most
		}
		order[i] = fmt.Sprintf("%s (%s), last answer %s ago", words.Ranks(ranks[why]), why, age)
	}
	return strings.Join(order, "; ")
}

// Quiet is the time since the last snapshot, or 0 if that time is short.
func (r *Report) Quiet() time.Duration {
	if r.Heard.IsZero() || r.Time.Sub(r.Heard) <= quietAfter {
		return 0
	}
	return r.Time.Sub(r.Heard)
}

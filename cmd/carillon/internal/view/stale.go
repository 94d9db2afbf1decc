package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// staleAfter is the age from which on what a process told is stale, even if nothing bad is known of it: watch asks each
// about once a minute.
const staleAfter = 90 * time.Second

// quietAfter is how long nobody may tell anything before all that is shown is stale.
const quietAfter = 30 * time.Second

// Stale is what a process told before it could not be asked any more. It is shown as it was, and marked.
type Stale struct {
	Rank int     `json:"rank"`
	Host string  `json:"host,omitempty"`
	Age  float64 `json:"age_seconds"` // of what it told
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

// Unanswered takes note that the process that told a snapshot doesn't answer any more.
func (v *View) Unanswered(of *endpoint.Snapshot) {
	key := keyOf(of)
	if p, ok := v.told[key]; ok {
		p.unanswered = true
		v.told[key] = p
	}
}

// StaleText says which ranks are stale, and how old what they told is: "rank 3 (unreachable) told 42s ago".
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
		order[i] = fmt.Sprintf("%s (%s) told %s ago", words.Ranks(ranks[why]), why, age)
	}
	return strings.Join(order, "; ")
}

// Quiet is for how long nobody has told anything; 0 if that is not for long.
func (r *Report) Quiet() time.Duration {
	if r.Heard.IsZero() || r.Time.Sub(r.Heard) <= quietAfter {
		return 0
	}
	return r.Time.Sub(r.Heard)
}

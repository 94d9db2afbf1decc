package alertmanager

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Bounds of what is known and sent.
const (
	maxAlerts   = 4096
	maxBatch    = 256              // alerts in one request
	aheadResend = 4                // endsAt of an open alert, in Resends
	tellEnd     = 15 * time.Minute // how long Alertmanagers are told that an alert has ended
)

const eventID = "event_id"

type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// tracked is an alert that Alertmanagers are to be told of.
type tracked struct {
	alert
	key    string
	order  uint64    // by which alerts are sent
	ended  bool      // EndsAt is fixed
	expire time.Time // when an alert that has no duration ends; zero of others
	due    time.Time // when it is sent
	events int       // that it tells of, and no Alertmanager has accepted
}

// table is the pure part: which alerts there are, and which are due.
type table struct {
	cfg   *Config
	open  map[string]*tracked // by key
	ended []*tracked
	order uint64
}

// apply takes an event, which counts as n. It returns false if there is no room for it.
func (t *table) apply(now time.Time, ev *bus.Event, n int) bool {
	key := ev.Key
	if key == "" {
		key = "\x00" + ev.ID // no two are one
	}
	old := t.open[key]
	if ev.Stage == bus.Closed {
		if old == nil {
			return true // nobody heard of it
		}
		old.events += n
		t.end(now, old, ev.Time)
		if ev.Unresolved {
			t.hold(old)
		}
		return true
	}
	labels := t.labels(ev)
	if old != nil && !maps.Equal(old.Labels, labels) {
		t.end(now, old, ev.Time)
		old = nil
	}
	if old == nil {
		if len(t.open)+len(t.ended) >= maxAlerts {
			return false
		}
		t.order++
		old = &tracked{key: key, order: t.order, alert: alert{Labels: labels, StartsAt: ev.Time}}
		t.open[key] = old
		t.reopen(old)
	}
	old.Annotations, old.due = t.annotations(ev), now
	old.events += n
	if ev.Stage == bus.Once {
		old.expire = now.Add(t.cfg.Hold)
	}
	return true
}

// hold has an alert that ended be one for long enough that somebody is told.
func (t *table) hold(a *tracked) {
	if until := a.StartsAt.Add(t.cfg.Hold); a.EndsAt.Before(until) {
		a.EndsAt = until
	}
}

// catchUp sets right what missed events left wrong, by what is open now. It returns how many had no room.
func (t *table) catchUp(now time.Time, open []*bus.Event) (full int) {
	holds := map[string]bool{}
	for _, ev := range open {
		holds[ev.Key] = true
		if old := t.open[ev.Key]; old != nil && old.Annotations[eventID] == ev.ID {
			continue
		}
		if !t.apply(now, ev, 0) { // it was counted as missed
			full++
		}
	}
	for key, a := range t.open {
		if a.expire.IsZero() && !holds[key] {
			t.end(now, a, now)
			t.hold(a) // nobody knows how it ended
		}
	}
	return full
}

func (t *table) end(now time.Time, a *tracked, at time.Time) {
	delete(t.open, a.key)
	if at.After(now) {
		at = now // or it would not have ended yet
	}
	a.ended, a.EndsAt, a.due, a.expire = true, at, now, now.Add(tellEnd)
	if !a.EndsAt.After(a.StartsAt) {
		a.EndsAt = a.StartsAt.Add(time.Millisecond) // Alertmanager refuses an end before the start
	}
	for _, other := range t.open {
		if maps.Equal(other.Labels, a.Labels) { // to Alertmanager they are one alert, which goes on
			other.events += a.events
			return
		}
	}
	t.ended = append(t.ended, a)
}

// reopen forgets that an alert with the labels of a has ended. Told later than a's beginning, it would end a.
func (t *table) reopen(a *tracked) {
	t.ended = slices.DeleteFunc(t.ended, func(old *tracked) bool {
		if !maps.Equal(old.Labels, a.Labels) {
			return false
		}
		a.events += old.events
		return true
	})
}

// due returns the alerts to send now, in the order in which they opened. They count as accepted.
func (t *table) due(now time.Time) []*tracked {
	for _, a := range t.open {
		if !a.expire.IsZero() && !now.Before(a.expire) {
			t.end(now, a, now)
		}
	}
	var out []*tracked
	for _, a := range t.open {
		if !now.Before(a.due) {
			a.due = now.Add(t.cfg.Resend)
			a.EndsAt = now.Add(aheadResend * t.cfg.Resend)
			out = append(out, a)
		}
	}
	t.ended = slices.DeleteFunc(t.ended, func(a *tracked) bool {
		if !now.Before(a.due) {
			out = append(out, a)
		}
		return !now.Before(a.expire)
	})
	slices.SortFunc(out, func(a, b *tracked) int { return int(int64(a.order) - int64(b.order)) })
	return out
}

func (t *table) accepted(sent []*tracked) {
	told := map[*tracked]bool{}
	for _, a := range sent {
		told[a] = a.ended
		a.events = 0
	}
	t.ended = slices.DeleteFunc(t.ended, func(a *tracked) bool { return told[a] })
}

// refused sends them again at the time given.
func (t *table) refused(sent []*tracked, again time.Time) {
	for _, a := range sent {
		a.due = again
	}
}

// next is when due has something; zero if never.
func (t *table) next() time.Time {
	var next time.Time
	earlier := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, a := range t.open {
		earlier(a.due)
		earlier(a.expire)
	}
	for _, a := range t.ended {
		earlier(a.due)
	}
	return next
}

func (t *table) labels(ev *bus.Event) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, t.cfg.Labels)
	labels["alertname"] = Name(ev)
	labels["severity"] = ev.Severity.String()
	for _, l := range []struct{ name, value string }{{"job", ev.Job}, {"reason", ev.Reason}, {"rank", ev.Rank}} {
		if l.value != "" {
			labels[l.name] = l.value
		}
	}
	return labels
}

func (t *table) annotations(ev *bus.Event) map[string]string {
	annotations := map[string]string{eventID: ev.ID}
	runbook := ""
	if t.cfg.Runbooks != "" {
		runbook = t.cfg.Runbooks + "#" + strings.ToLower(Name(ev))
	}
	for _, a := range []struct{ name, value string }{
		{"summary", ev.Text},
		{"description", ev.Description},
		{"subject", ev.Subject},
		{"as_of", ev.Time.UTC().Format(time.RFC3339)}, // the ages in the summary are of then
		{"runbook_url", runbook},
	} {
		if a.value != "" {
			annotations[a.name] = a.value
		}
	}
	return annotations
}

// Name is the name of an event's alert, the same as the alerting rules have it: CarillonVerdict, CarillonDeadlock and
// CarillonStraggler for verdicts, otherwise from the event's type: CarillonRankDead, CarillonGpuXid.
func Name(ev *bus.Event) string {
	kind := strings.TrimPrefix(ev.Type, semconv.EventPrefix)
	if strings.HasPrefix(kind, "verdict.") {
		kind = "verdict"
		if ev.Reason == "deadlock" || ev.Reason == "straggler" {
			kind = ev.Reason
		}
	}
	var b strings.Builder
	b.WriteString("Carillon")
	for word := range strings.FieldsFuncSeq(kind, func(r rune) bool { return r == '.' || r == '_' || r == '-' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

package alertmanager

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Bounds of what is known and sent.
const (
	maxAlerts   = 4096
	maxBatch    = 256              // alerts in one request
	aheadResend = 4                // endsAt of an open alert, in Resends
	retries     = 12               // attempts in the time of one Resend, while they fail
	tellEnd     = 15 * time.Minute // how long to go on sending that an alert has ended
	// hold is how long a momentary event is an alert, and the least duration of a condition that was closed unresolved:
	// a crash ends the job and all its conditions in less than the group_wait after which Alertmanager notifies
	// anybody.
	hold = 5 * time.Minute
)

const eventID = "event_id"

// tracked is an alert. For Alertmanager, all conditions with the same labels are one alert.
type tracked struct {
	model.Alert
	open   map[string]time.Time // by the key of each open condition: when it ends, if it is a momentary event
	due    time.Time            // when it is sent next
	forget time.Time            // if it has ended: until when its end is sent
	events uint64               // its events that no Alertmanager has accepted yet
}

// table is the pure part: which alerts there are, and which are due.
type table struct {
	cfg    *Config
	alerts map[model.Fingerprint]*tracked // by labels
	byKey  map[string]*tracked            // by the keys of open conditions
}

func newTable(cfg *Config) table {
	return table{cfg: cfg, alerts: map[model.Fingerprint]*tracked{}, byKey: map[string]*tracked{}}
}

// apply takes an event, which counts as n events. It returns false if there is no room for it.
func (t *table) apply(now time.Time, ev *bus.Event, n uint64) bool {
	key := ev.Key
	if key == "" {
		key = "\x00" + ev.ID // unique
	}
	old := t.byKey[key]
	if ev.Stage == bus.Closed {
		if old != nil { // otherwise its beginning was never sent
			old.events += n
			t.end(now, key, ev.Time, ev.Unresolved)
		}
		return true
	}
	labels := labelsOf(ev)
	a := t.alerts[labels.Fingerprint()]
	if old != nil && old != a {
		t.end(now, key, ev.Time, false)
	}
	if a == nil {
		if len(t.alerts) >= maxAlerts {
			return false
		}
		a = &tracked{Alert: model.Alert{Labels: labels}, open: map[string]time.Time{}}
		t.alerts[labels.Fingerprint()] = a
	}
	if len(a.open) == 0 {
		a.StartsAt = ev.Time
	}
	t.byKey[key], a.open[key] = a, time.Time{}
	if ev.Stage == bus.Once {
		a.open[key] = now.Add(hold)
	}
	a.Annotations, a.due = annotationsOf(ev), now
	a.events += n
	return true
}

// end ends a condition, and its alert if no other condition has the same labels. held keeps the alert open for hold.
func (t *table) end(now time.Time, key string, at time.Time, held bool) {
	a := t.byKey[key]
	delete(t.byKey, key)
	if delete(a.open, key); len(a.open) > 0 {
		return
	}
	if at.After(now) {
		at = now // or it would not have ended yet
	}
	earliest := a.StartsAt.Add(time.Millisecond) // Alertmanager refuses an end before the start
	if held {
		earliest = a.StartsAt.Add(hold)
	}
	if at.Before(earliest) {
		at = earliest
	}
	a.EndsAt, a.due, a.forget = at, now, now.Add(tellEnd)
	if !held {
		a.due = at // an end that is still ahead would not replace the one that Alertmanager has
	}
}

// catchUp corrects the alerts after missed events, by the conditions that are open now. It returns how many of them had
// no room.
func (t *table) catchUp(now time.Time, open []*bus.Event) (full uint64) {
	lasts := map[string]bool{}
	for _, ev := range open {
		lasts[ev.Key] = true
		if a := t.byKey[ev.Key]; a != nil && string(a.Annotations[eventID]) == ev.ID {
			continue
		}
		if !t.apply(now, ev, 0) { // it was counted as missed
			full++
		}
	}
	for key, a := range t.byKey {
		if a.open[key].IsZero() && !lasts[key] {
			t.end(now, key, now, true) // nobody knows how it ended
		}
	}
	return full
}

func (t *table) due(now time.Time) []*tracked {
	for key, a := range t.byKey {
		if over := a.open[key]; !over.IsZero() && !now.Before(over) {
			t.end(now, key, now, false)
		}
	}
	var out []*tracked
	for _, a := range t.alerts {
		if now.Before(a.due) {
			continue
		}
		if len(a.open) > 0 {
			a.due = now.Add(t.cfg.Resend)
			a.EndsAt = now.Add(aheadResend * t.cfg.Resend)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *tracked) int { return a.StartsAt.Compare(b.StartsAt) })
	return out
}

// accepted notes that Alertmanagers have accepted these alerts, and returns how many events that covers.
func (t *table) accepted(sent []*tracked) (events uint64) {
	for _, a := range sent {
		events += a.events
		a.events = 0
		if len(a.open) == 0 {
			delete(t.alerts, a.Labels.Fingerprint())
		}
	}
	return events
}

// refused schedules these alerts again. It gives some up, and returns how many events they cover.
func (t *table) refused(sent []*tracked, again time.Time) (failed uint64) {
	for _, a := range sent {
		a.due = again
		if len(a.open) == 0 && again.After(a.forget) {
			failed += a.events
			delete(t.alerts, a.Labels.Fingerprint())
		}
	}
	return failed
}

// hurry makes all alerts due that no Alertmanager has accepted.
func (t *table) hurry(now time.Time) {
	for _, a := range t.alerts {
		if len(a.open) == 0 || a.events > 0 {
			a.due = now
		}
	}
}

// next is when due will return something; zero if never.
func (t *table) next() (next time.Time) {
	for _, a := range t.alerts {
		next = earlier(next, a.due)
		for _, over := range a.open {
			next = earlier(next, over)
		}
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// labelsOf are the labels of an event's alert: the same as those of the alert of this name in dashboards/rules, so that
// Alertmanager sees one alert.
func labelsOf(ev *bus.Event) model.LabelSet {
	labels := model.LabelSet{
		"alertname": model.LabelValue(Name(ev)), "severity": model.LabelValue(ev.Severity.String()),
	}
	set(labels, "job", ev.Job)
	set(labels, "rank", ev.Rank)
	if ev.Labels == nil {
		set(labels, "reason", ev.Reason)
	}
	for name, value := range ev.Labels {
		set(labels, model.LabelName(name), value)
	}
	return labels
}

func annotationsOf(ev *bus.Event) model.LabelSet {
	annotations := model.LabelSet{eventID: model.LabelValue(ev.ID)}
	set(annotations, "summary", ev.Text)
	set(annotations, "description", ev.Description)
	set(annotations, "subject", ev.Subject)
	set(annotations, "as_of", ev.Time.UTC().Format(time.RFC3339)) // the ages in the summary are of then
	return annotations
}

func set(to model.LabelSet, name model.LabelName, value string) {
	if value != "" {
		to[name] = model.LabelValue(value)
	}
}

// names are those of the alerting rules, by the types of events.
var names = map[string]string{
	semconv.EventGPUXid: "CarillonGPUXid", semconv.EventGPUECC: "CarillonGPUMemoryError",
	semconv.EventGPUNVLink: "CarillonGPUNVLinkErrors", semconv.EventGPUThrottled: "CarillonGPUThrottled",
	semconv.EventGPULost: "CarillonGPULost",
}

// Name is the name of an event's alert, as in the alerting rules: CarillonVerdict, CarillonDeadlock or
// CarillonStraggler for a verdict, CarillonGPUXid and so on for GPUs, otherwise derived from the event's type.
func Name(ev *bus.Event) string {
	if name := names[ev.Type]; name != "" {
		return name
	}
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

package bus

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// window is how long after an event similar events are folded.
	window = 10 * time.Second
	// linger is how long a symptom is held back after its cause has closed, as symptoms end a moment later.
	linger = 2 * time.Second

	// forget is how long a condition that has closed is remembered, with its last event.
	forget = 10 * time.Minute

	maxKeys  = 4096 // of conditions that are known; beyond, events of new keys pass as they are
	maxChain = 32   // causes of causes
)

// gate decides which events are published. It is a pure machine: its owner tells it the time.
type gate struct {
	conditions map[conditionKey]*condition
	wake       time.Time // when advance is due; zero if never
}

// conditionKey identifies a condition: jobs that share a bus may have the same keys.
type conditionKey struct{ job, key string }

// condition is the key of the condition that an event is about.
func (e *Event) condition() conditionKey { return conditionKey{e.Job, e.Key} }

// explainedBy is the key of the condition that explains an event.
func (e *Event) explainedBy() conditionKey { return conditionKey{e.Job, e.Cause} }

type condition struct {
	open    bool      // as its publishers have it
	shown   bool      // open, as subscribers have it
	touched time.Time // the time of its last event

	last    *Event    // the last that was published; nil if none
	at      time.Time // when
	pending *Event    // the newest that was folded, if it differs from last
	repeats uint64    // folded since last
	peak    Severity  // the highest since it opened

	held       *Event    // the newest that was held back, nil if none
	release    time.Time // when held is looked at again; zero while its cause is open
	suppressed uint64    // symptoms that were held back for this condition
}

// offer takes an event, and returns it if it is to be published.
func (g *gate) offer(now time.Time, ev *Event) *Event {
	if ev.Key == "" {
		if cause := g.cause(ev); cause != nil {
			cause.suppressed++
			return nil
		}
		return ev
	}
	c := g.conditions[ev.condition()]
	if c == nil {
		if !g.room(now) {
			return ev
		}
		c = &condition{}
		g.conditions[ev.condition()] = c
	}
	c.touched = now
	if ev.Stage != Once {
		if !c.open && ev.Stage != Closed {
			c.peak = 0
		}
		c.peak = max(c.peak, ev.Severity)
		if c.open = ev.Stage != Closed; !c.open {
			g.closed(now, ev.condition())
		}
	}
	if g.hold(c, ev) {
		return nil
	}
	if c.fold(now, ev) {
		if c.pending != nil {
			g.due(c.at.Add(window))
		}
		return nil
	}
	return c.publish(now, ev)
}

func (g *gate) hold(c *condition, ev *Event) bool {
	cause := g.cause(ev)
	switch {
	case ev.Stage == Closed && c.held != nil:
		c.held, c.release = nil, time.Time{}
		return !c.shown // its end is no news if its beginning wasn't published
	case cause == nil:
		if c.held != nil && !c.shown && ev.Stage == Changed { // to its subscribers it opens now
			ev.Type, ev.Stage = c.held.Type, c.held.Stage
		}
		if ev.Stage != Once {
			c.held, c.release = nil, time.Time{}
		}
		return false
	case ev.Stage == Once:
		cause.suppressed++
		return true
	case ev.Stage == Closed:
		return false
	default:
		if c.held == nil {
			cause.suppressed++
		} else if !c.shown {
			ev.Type, ev.Stage = c.held.Type, c.held.Stage
		}
		c.held, c.release = ev, time.Time{}
		return true
	}
}

// cause finds the open condition that explains an event; nil if there is none, or the event's own condition explains
// it.
func (g *gate) cause(ev *Event) *condition {
	if ev.Cause == "" || ev.Cause == ev.Key {
		return nil
	}
	first := g.conditions[ev.explainedBy()]
	if first == nil || !first.open {
		return nil
	}
	for c, i := first, 0; c != nil && c.held != nil && i < maxChain; i++ {
		if c.held.Cause == ev.Key {
			return nil
		}
		c = g.conditions[c.held.explainedBy()]
	}
	return first
}

// closed begins the linger of the symptoms of a condition that has closed.
func (g *gate) closed(now time.Time, key conditionKey) {
	for _, c := range g.conditions {
		if c.held != nil && c.held.explainedBy() == key {
			c.release = now.Add(linger)
			g.due(c.release)
		}
	}
}

// fold counts an event that repeats the last one of its key. An event that differs is kept until the window is over.
func (c *condition) fold(now time.Time, ev *Event) bool {
	if c.last == nil || c.last.Type != ev.Type || c.last.Stage != ev.Stage {
		return false
	}
	same := ev.like(c.last)
	lasting := same && ev.Stage != Once
	if !lasting && !now.Before(c.at.Add(window)) || ev.Severity > c.last.Severity { // what gets worse doesn't wait
		return false
	}
	c.repeats++
	c.pending = ev
	if same {
		c.pending = nil
	}
	return true
}

func (c *condition) publish(now time.Time, ev *Event) *Event {
	ev.Repeats = c.repeats
	if ev.Stage != Once {
		ev.peak = c.peak
	}
	c.last, c.at, c.pending, c.repeats = ev, now, nil, 0
	switch ev.Stage {
	case Opened, Changed:
		c.shown = true
	case Closed:
		c.shown = false
		ev.Suppressed, c.suppressed = c.suppressed, 0
	case Once:
	}
	return ev
}

// advance returns the events that are due for publication now, and sets wake anew.
func (g *gate) advance(now time.Time) []*Event {
	g.wake = time.Time{}
	var out []*Event
	for _, c := range g.conditions {
		if c.pending != nil {
			if end := c.at.Add(window); now.Before(end) {
				g.due(end)
			} else {
				c.repeats-- // it is not one of its own repetitions
				out = append(out, c.publish(now, c.pending))
			}
		}
		if c.held != nil && !c.release.IsZero() {
			switch {
			case now.Before(c.release):
				g.due(c.release)
			case g.cause(c.held) != nil:
				c.release = time.Time{}
			default:
				ev := c.held
				c.held, c.release = nil, time.Time{}
				if !c.shown || !ev.like(c.last) {
					out = append(out, c.publish(now, ev))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *Event) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Key, b.Key))
	})
	return out
}

// idle tells whether forgetting the condition loses no more than its count of repetitions.
func (c *condition) idle() bool { return !c.open && c.held == nil && c.pending == nil }

// room makes room for one more key, and tells whether there is any. It forgets the conditions that have long been idle
// and, if need be, the half that has been idle longest.
func (g *gate) room(now time.Time) bool {
	maps.DeleteFunc(g.conditions, func(_ conditionKey, c *condition) bool {
		return c.idle() && now.Sub(c.touched) > forget
	})
	if len(g.conditions) < maxKeys {
		return true
	}
	var idle []conditionKey
	for key, c := range g.conditions {
		if c.idle() {
			idle = append(idle, key)
		}
	}
	slices.SortFunc(idle, func(a, b conditionKey) int {
		return g.conditions[a].touched.Compare(g.conditions[b].touched)
	})
	for _, key := range idle[:(len(idle)+1)/2] {
		delete(g.conditions, key)
	}
	return len(idle) > 0
}

func (g *gate) flush(now time.Time) []*Event {
	for _, c := range g.conditions {
		if c.pending != nil {
			c.at = now.Add(-window)
		}
	}
	return g.advance(now)
}

func (g *gate) due(t time.Time) {
	if g.wake.IsZero() || t.Before(g.wake) {
		g.wake = t
	}
}

package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
)

// Declaration says what sort of thing can go wrong, before it does.
type Declaration struct {
	// Code is the stable name, as of a check: "gpu_lost". /readyz/gpu_lost answers for it if it can make the process
	// not ready.
	Code string

	// Title says in a few words what it is: "a GPU doesn't answer".
	Title string

	// DependsOn are the codes, declared before, of which this one is a symptom. It is silent while one of them is open
	// for the same subject, or where one of the two is about none in particular.
	DependsOn []string

	// NotReady says that a critical condition makes the process not ready, silent or not. None makes it not live: see
	// the package's rules.
	NotReady bool
}

// Finding is what was found wrong.
type Finding struct {
	Subject  string // of what: "GPU 3", "rank 7", "comm tp0"; empty if of none in particular
	Text     string // what is wrong, in a sentence
	Advice   string // what to do about it, if that is known
	Severity bus.Severity

	// TextAfter is for a sentence that has ages in it: how it reads that long after the finding. Text is the sentence
	// without the ages then, by which a finding is known to say something new.
	TextAfter func(time.Duration) string
}

// Condition is something that is wrong now.
type Condition struct {
	Code      string       `json:"code"`
	Subject   string       `json:"subject,omitempty"`
	Severity  bus.Severity `json:"severity"`
	Title     string       `json:"title,omitempty"`
	Text      string       `json:"text"`
	Advice    string       `json:"advice,omitempty"`
	Since     time.Time    `json:"since"`
	DependsOn []string     `json:"depends_on,omitempty"`
	// Cause is the code of an open condition that explains this one, which is silent therefore; empty if it is shown.
	Cause    string `json:"cause,omitempty"`
	NotReady bool   `json:"not_ready,omitempty"`
}

// finding is an open condition as it was found last.
type finding struct {
	Finding
	since, found time.Time
}

// Silent tells whether the condition is shown only where all are asked for.
func (c Condition) Silent() bool { return c.Cause != "" }

// String is "gpu_lost (GPU 3): it doesn't answer", without line ends.
func (c Condition) String() string {
	text := c.Code
	if c.Subject != "" {
		text += " (" + c.Subject + ")"
	}
	return words.Line(text + ": " + c.Text)
}

// Bounds of what is kept. Longer texts are cut, and further conditions left out.
const (
	MaxConditions     = 1024
	maxConditionText  = 4 << 10
	maxConditionTitle = 256
)

// Conditions are what is wrong with the process at the moment. They are safe for concurrent use and never block. The
// zero Conditions is empty and ready.
type Conditions struct {
	mu        sync.Mutex
	warnables map[string]*Warnable
	open      map[conditionKey]*finding
	changed   chan struct{} // nil: nobody waits
}

type conditionKey struct{ code, subject string }

// Warnable is what a finder sets and clears the conditions of one code with.
type Warnable struct {
	of *Conditions
	Declaration
	causes []string // what it depends on, directly or not, the nearest first
}

// Declare makes a code known. It fails when it is malformed, the code is taken, or it depends on one that is not
// declared.
func (c *Conditions) Declare(d Declaration) (*Warnable, error) {
	if err := checkName("condition", d.Code); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warnables[d.Code] != nil {
		return nil, fmt.Errorf("health: condition %q is declared already", d.Code)
	}
	d.Title = words.Clip(d.Title, maxConditionTitle)
	d.DependsOn = slices.Clone(d.DependsOn)
	w := &Warnable{of: c, Declaration: d, causes: d.DependsOn}
	for _, code := range d.DependsOn {
		cause := c.warnables[code]
		if cause == nil {
			return nil, fmt.Errorf("health: condition %q depends on %q, which is not declared", d.Code, code)
		}
		w.causes = slices.Concat(w.causes, cause.causes)
	}
	if c.warnables == nil {
		c.warnables, c.open = map[string]*Warnable{}, map[conditionKey]*finding{}
	}
	c.warnables[d.Code] = w
	return w, nil
}

// Set opens the condition of the finding's subject, or changes what is said of it; since when it is stays.
func (w *Warnable) Set(f Finding) {
	f.Subject, f.Text = words.Clip(f.Subject, maxConditionTitle), words.Clip(f.Text, maxConditionText)
	f.Advice = words.Clip(f.Advice, maxConditionText)
	c := w.of
	c.mu.Lock()
	defer c.mu.Unlock()
	key := conditionKey{w.Code, f.Subject}
	old := c.open[key]
	if old == nil && len(c.open) >= MaxConditions {
		return
	}
	now := time.Now()
	c.open[key] = &finding{f, now, now}
	if old != nil {
		c.open[key].since = old.since
		if old.Text == f.Text && old.Advice == f.Advice && old.Severity == f.Severity {
			return
		}
	}
	c.signal()
}

// Clear closes the subject's condition, if it is open.
func (w *Warnable) Clear(subject string) {
	c := w.of
	c.mu.Lock()
	defer c.mu.Unlock()
	key := conditionKey{w.Code, words.Clip(subject, maxConditionTitle)}
	if c.open[key] != nil {
		delete(c.open, key)
		c.signal()
	}
}

// signal wakes the waiters of Changed. c.mu is held.
func (c *Conditions) signal() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Changed is closed at the next change. To miss none, get it before List.
func (c *Conditions) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// List has all that are open, as they read now: those that are shown first, the most severe of them first, then the
// oldest. It is the caller's. Nil Conditions have none.
func (c *Conditions) List() []Condition {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Condition, 0, len(c.open))
	for key, f := range c.open {
		w := c.warnables[key.code]
		condition := Condition{
			Code: w.Code, Subject: f.Subject, Severity: f.Severity, Title: w.Title, Text: f.Text, Advice: f.Advice,
			Since: f.since, DependsOn: w.DependsOn, Cause: c.cause(w, f.Subject),
			NotReady: w.NotReady && f.Severity == bus.Critical,
		}
		if f.TextAfter != nil {
			condition.Text = words.Clip(f.TextAfter(time.Since(f.found)), maxConditionText)
		}
		all = append(all, condition)
	}
	slices.SortFunc(all, func(a, b Condition) int {
		if a.Silent() != b.Silent() {
			return cmp.Compare(len(a.Cause), len(b.Cause))
		}
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), a.Since.Compare(b.Since), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Subject, b.Subject))
	})
	return all
}

// cause is the first of a code's causes that is open for the subject. c.mu is held.
func (c *Conditions) cause(w *Warnable, subject string) string {
	for _, code := range w.causes {
		if c.open[conditionKey{code, ""}] != nil || c.open[conditionKey{code, subject}] != nil {
			return code
		}
		for key := range c.open {
			if subject == "" && key.code == code {
				return code
			}
		}
	}
	return ""
}

// checks are the results of the declared codes that can make the process not ready, by code, in order.
func (c *Conditions) checks() []Result {
	if c == nil {
		return nil
	}
	errs := map[string][]error{}
	for _, condition := range c.List() {
		if condition.NotReady {
			text := condition.Text
			if condition.Subject != "" {
				text = condition.Subject + ": " + text
			}
			errs[condition.Code] = append(errs[condition.Code], errors.New(text))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var results []Result
	for _, code := range slices.Sorted(maps.Keys(c.warnables)) {
		if c.warnables[code].NotReady {
			results = append(results, Result{Name: code, Err: errors.Join(errs[code]...)})
		}
	}
	return results
}

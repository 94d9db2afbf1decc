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

// Declaration declares a kind of condition.
type Declaration struct {
	// Code is the stable name, such as "gpu_lost". With NotReady, it is also the name of a check: /readyz/gpu_lost.
	Code string

	// Title describes it in a few words: "a GPU doesn't answer".
	Title string

	// DependsOn are codes, declared before, of which this one is a symptom. The condition is silent while one of them
	// is open for the same subject, or for any subject if one of the two has none.
	DependsOn []string

	// NotReady says that a critical condition makes the process not ready, silent or not. No condition makes a process
	// not live: see the package's documentation.
	NotReady bool
}

// Finding is what was found wrong.
type Finding struct {
	Subject  string // "GPU 3", "rank 7", "comm tp0"; empty for none
	Text     string // what is wrong, in a sentence
	Advice   string // what to do about it, if known
	Severity bus.Severity

	// TextAfter is set if the sentence has ages: it returns the sentence as of the given time after the finding. Text
	// is then the sentence without ages, and is used to compare findings.
	TextAfter func(time.Duration) string
}

// Condition is something that is wrong now.
type Condition struct {
	Job       string       `json:"job,omitempty"` // in a Snapshot
	Code      string       `json:"code"`
	Subject   string       `json:"subject,omitempty"`
	Severity  bus.Severity `json:"severity"`
	Title     string       `json:"title,omitempty"`
	Text      string       `json:"text"`
	Advice    string       `json:"advice,omitempty"`
	Since     time.Time    `json:"since"`
	DependsOn []string     `json:"depends_on,omitempty"`
	// Cause is the code of an open condition that explains this one, which makes it silent; empty if there is none.
	Cause    string `json:"cause,omitempty"`
	NotReady bool   `json:"not_ready,omitempty"`
}

// finding is an open condition with its last Finding.
type finding struct {
	Finding
	since, found time.Time
}

// Silent tells whether the condition has an open cause. It is then shown only in lists of all conditions.
func (c Condition) Silent() bool { return c.Cause != "" }

// String is "gpu_lost (GPU 3): it doesn't answer", without line ends.
func (c Condition) String() string {
	text := c.Code
	if c.Subject != "" {
		text += " (" + c.Subject + ")"
	}
	return words.Line(text + ": " + c.Text)
}

// Limits of the open conditions. Longer texts are cut, and more conditions are dropped.
const (
	MaxConditions     = 1024
	maxConditionText  = 4 << 10
	maxConditionTitle = 256
)

// Conditions are the open conditions of a process. They are safe for concurrent use and never block. The zero
// Conditions is empty and ready.
type Conditions struct {
	mu        sync.Mutex
	warnables map[string]*Warnable
	open      map[conditionKey]*finding
	changed   chan struct{} // closed at the next change; nil if no caller of Changed waits
}

type conditionKey struct{ code, subject string }

// Warnable sets and clears the conditions of one code.
type Warnable struct {
	of *Conditions
	Declaration
	causes []string // the codes on which it depends, directly or indirectly, nearest first
}

// Declare declares a code. It fails if the code is malformed or taken, or depends on one that is not declared.
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

// Set opens the condition of the finding's subject, or updates it; its Since stays.
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

// Changed returns a channel that is closed at the next change. To miss none, call it before List.
func (c *Conditions) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// List returns all open conditions, with current ages: first those that aren't silent, by severity and age. The caller
// owns the list. Nil Conditions have none.
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

// checks returns the results of the declared codes that can make the process not ready, in the order of codes.
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

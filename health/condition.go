package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Severity is how urgent a condition is.
type Severity uint8

// The severities, as the alerting rules have them.
const (
	Info     Severity = iota + 1 // nobody need act
	Warning                      // in working hours
	Critical                     // now
)

var severityNames = [...]string{"", "info", "warning", "critical"}

// String is the severity's name: "warning".
func (s Severity) String() string {
	if s >= Info && s <= Critical {
		return severityNames[s]
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// MarshalText is String, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Severity) UnmarshalText(text []byte) error {
	for i := Info; i <= Critical; i++ {
		if severityNames[i] == string(text) {
			*s = i
			return nil
		}
	}
	return fmt.Errorf("health: %.32q is no severity: allowed are info, warning, critical", text)
}

// Declaration says what sort of thing can go wrong, before it does.
type Declaration struct {
	// Code is the stable name, as of a check: "gpu_lost". /readyz/gpu_lost answers for it if it can make the process not
	// ready.
	Code string

	// Severity of its conditions, unless a Finding says otherwise.
	Severity Severity

	// Title says in a few words what it is: "a GPU doesn't answer".
	Title string

	// DependsOn are the codes of which this one is a symptom. It is silent while one of them is open for the same subject,
	// or where one of the two is about none in particular. They may be declared later, or never; a circle is refused.
	DependsOn []string

	// NotReadyFrom is the least severity at which a condition makes the process not ready, silent or not; 0 is never. No
	// condition makes it not live: see the package's rules.
	NotReadyFrom Severity
}

// Finding is what was found wrong.
type Finding struct {
	Subject  string   // of what: "GPU 3", "rank 7", "comm tp0"; empty if of none in particular
	Text     string   // what is wrong, in a sentence
	Advice   string   // what to do about it, if that is known
	Severity Severity // 0 is the Declaration's
}

// Condition is something that is wrong now.
type Condition struct {
	Code      string    `json:"code"`
	Subject   string    `json:"subject,omitempty"`
	Severity  Severity  `json:"severity"`
	Title     string    `json:"title,omitempty"`
	Text      string    `json:"text"`
	Advice    string    `json:"advice,omitempty"`
	Since     time.Time `json:"since"`
	DependsOn []string  `json:"depends_on,omitempty"`
	// Cause is the code of an open condition that explains this one, which is silent therefore; empty if it is shown.
	Cause    string `json:"cause,omitempty"`
	NotReady bool   `json:"not_ready,omitempty"`
}

// Silent tells whether the condition is shown only where all are asked for.
func (c Condition) Silent() bool { return c.Cause != "" }

// String is "gpu_lost (GPU 3): it doesn't answer", without line ends.
func (c Condition) String() string {
	text := c.Code
	if c.Subject != "" {
		text += " (" + c.Subject + ")"
	}
	return oneLine(text + ": " + c.Text)
}

// Bounds of what is kept. Longer texts are cut; conditions beyond are only counted.
const (
	MaxConditions     = 1024
	maxConditionText  = 4 << 10
	maxConditionTitle = 256
)

// Conditions are what is wrong with the process at the moment, told by whoever finds it. They are safe for concurrent
// use, wait for nobody, and the zero Conditions is empty and ready.
type Conditions struct {
	mu        sync.Mutex
	warnables map[string]*Warnable
	open      map[conditionKey]*Condition
	dropped   uint64
	changed   chan struct{} // nil: nobody waits
}

type conditionKey struct{ code, subject string }

// Warnable is what a finder sets and clears the conditions of one code with. A nil Warnable does nothing.
type Warnable struct {
	of *Conditions
	Declaration
}

// Declare makes a code known. It fails when it is malformed, the code is taken, or it would be its own cause.
func (c *Conditions) Declare(d Declaration) (*Warnable, error) {
	switch {
	case !validName(d.Code):
		return nil, fmt.Errorf("health: condition %q: a code has lower-case letters, digits, '-' and '_' only, from 1 to "+
			"63 of them", d.Code)
	case d.Severity < Info || d.Severity > Critical:
		return nil, fmt.Errorf("health: condition %q: its severity is Info, Warning or Critical, not %d", d.Code, d.Severity)
	case d.NotReadyFrom > Critical:
		return nil, fmt.Errorf("health: condition %q: NotReadyFrom is a severity or 0, not %d", d.Code, d.NotReadyFrom)
	}
	for _, code := range d.DependsOn {
		if !validName(code) {
			return nil, fmt.Errorf("health: condition %q depends on %q, which is no code", d.Code, code)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warnables[d.Code] != nil {
		return nil, fmt.Errorf("health: condition %q is declared already", d.Code)
	}
	d.Title = clip(d.Title, maxConditionTitle)
	d.DependsOn = slices.Clone(d.DependsOn)
	if circle := c.leadsTo(d.DependsOn, d.Code, map[string]bool{}); circle != "" {
		return nil, fmt.Errorf("health: condition %q depends on itself, through %q", d.Code, circle)
	}
	if c.warnables == nil {
		c.warnables, c.open = map[string]*Warnable{}, map[conditionKey]*Condition{}
	}
	w := &Warnable{of: c, Declaration: d}
	c.warnables[d.Code] = w
	return w, nil
}

// leadsTo is the one of codes that is target or depends on it, at whatever distance; empty if none does.
func (c *Conditions) leadsTo(codes []string, target string, seen map[string]bool) string {
	for _, code := range codes {
		if code == target {
			return code
		}
		if w := c.warnables[code]; w != nil && !seen[code] {
			seen[code] = true
			if c.leadsTo(w.DependsOn, target, seen) != "" {
				return code
			}
		}
	}
	return ""
}

// Set opens the condition of the finding's subject, or changes what is said of it; since when it is stays.
func (w *Warnable) Set(f Finding) {
	if w == nil {
		return
	}
	f.Subject, f.Text = clip(f.Subject, maxConditionTitle), clip(f.Text, maxConditionText)
	f.Advice = clip(f.Advice, maxConditionText)
	if f.Severity < Info || f.Severity > Critical {
		f.Severity = w.Severity
	}
	c := w.of
	c.mu.Lock()
	defer c.mu.Unlock()
	key := conditionKey{w.Code, f.Subject}
	old := c.open[key]
	switch {
	case old == nil && len(c.open) >= MaxConditions:
		c.dropped++
		return
	case old != nil && old.Text == f.Text && old.Advice == f.Advice && old.Severity == f.Severity:
		return
	}
	condition := &Condition{
		Code: w.Code, Subject: f.Subject, Severity: f.Severity, Title: w.Title, Text: f.Text, Advice: f.Advice,
		Since:     time.Now(),
		DependsOn: w.DependsOn, NotReady: w.NotReadyFrom != 0 && f.Severity >= w.NotReadyFrom,
	}
	if old != nil {
		condition.Since = old.Since
	}
	c.open[key] = condition
	c.signal()
}

// Clear closes the subject's condition, if it is open.
func (w *Warnable) Clear(subject string) {
	if w == nil {
		return
	}
	w.clear(func(s string) bool { return s == clip(subject, maxConditionTitle) })
}

// ClearAll closes the conditions of all subjects.
func (w *Warnable) ClearAll() {
	if w == nil {
		return
	}
	w.clear(func(string) bool { return true })
}

func (w *Warnable) clear(chosen func(subject string) bool) {
	c := w.of
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.open)
	maps.DeleteFunc(c.open, func(k conditionKey, _ *Condition) bool { return k.code == w.Code && chosen(k.subject) })
	if len(c.open) != before {
		c.signal()
	}
}

// signal wakes those who wait for a change. c.mu is held.
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

// Dropped counts the findings that were lost because MaxConditions were open.
func (c *Conditions) Dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped
}

// List has all that are open: those that are shown first, the most severe of them first, then the oldest. It is the
// caller's. Nil Conditions have none.
func (c *Conditions) List() []Condition {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Condition, 0, len(c.open))
	subjects := make(map[string]map[string]bool) // by code
	for key, condition := range c.open {
		all = append(all, *condition)
		if subjects[key.code] == nil {
			subjects[key.code] = map[string]bool{}
		}
		subjects[key.code][key.subject] = true
	}
	for i := range all {
		all[i].Cause = c.cause(&all[i], subjects)
	}
	slices.SortFunc(all, func(a, b Condition) int {
		return cmp.Or(
			cmp.Compare(boolInt(a.Silent()), boolInt(b.Silent())), cmp.Compare(b.Severity, a.Severity), a.Since.Compare(b.Since),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject),
		)
	})
	return all
}

// cause is the first code that the condition depends on, directly or not, and that is open for its subject.
func (c *Conditions) cause(of *Condition, subjects map[string]map[string]bool) string {
	queue, seen := slices.Clone(of.DependsOn), map[string]bool{}
	for len(queue) > 0 {
		code := queue[0]
		queue = queue[1:]
		if seen[code] {
			continue
		}
		seen[code] = true
		open := subjects[code]
		if len(open) > 0 && (of.Subject == "" || open[""] || open[of.Subject]) {
			return code
		}
		if w := c.warnables[code]; w != nil {
			queue = append(queue, w.DependsOn...)
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
		if c.warnables[code].NotReadyFrom != 0 {
			results = append(results, Result{Name: code, Err: errors.Join(errs[code]...)})
		}
	}
	return results
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// clip cuts text to at most n bytes of valid UTF-8.
func clip(text string, n int) string {
	long := len(text) > n
	if long {
		text = text[:n-len("…")]
	}
	text = strings.ToValidUTF8(text, "")
	if long {
		text += "…"
	}
	return text
}

package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Check is a check's function. It returns nil or a Well if all is well, and otherwise an error that says in a few words
// what is wrong. Its context ends at its timeout. It may be called from any goroutine, but never twice at a time.
type Check func(ctx context.Context) error

// Well is a Check's result for "nothing is wrong", with a text: Well("no GPU"). Wrapped in or joined with another
// error, it counts as an error.
type Well string

// Error is the text.
func (w Well) Error() string { return string(w) }

// Kind says which probes a check is for.
type Kind uint8

// The kinds. A check may have both.
const (
	Live  Kind = 1 << iota // if it fails, the process should be restarted
	Ready                  // if it fails, the process can't do its work now
)

// DefaultCheckTimeout is the default timeout of a check.
const DefaultCheckTimeout = time.Second

// Registry is a set of named checks, safe for concurrent use. The zero Registry is empty and ready.
type Registry struct {
	mu     sync.Mutex
	checks []*entry // by name
}

type entry struct {
	name    string
	kind    Kind
	timeout time.Duration
	check   Check

	mu      sync.Mutex
	running *run
}

// run is one execution of a check. All callers during it share its answer.
type run struct {
	since time.Time
	done  chan struct{}
	err   error // written before done is closed
}

// Register adds a check under a name, which becomes part of a URL: lower-case letters, digits, '-' and '_'. A timeout
// of 0 means DefaultCheckTimeout. It fails when the name is malformed or taken, or kind or check is zero.
func (r *Registry) Register(name string, kind Kind, timeout time.Duration, check Check) error {
	if err := checkName("check", name); err != nil {
		return err
	}
	switch {
	case kind == 0 || kind > Live|Ready:
		return fmt.Errorf("health: check %q: its kind is Live, Ready or both, not %d", name, kind)
	case check == nil:
		return fmt.Errorf("health: check %q is nil", name)
	case timeout < 0:
		return fmt.Errorf("health: check %q: its timeout is negative (%s)", name, timeout)
	case timeout == 0:
		timeout = DefaultCheckTimeout
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, taken := slices.BinarySearchFunc(r.checks, name,
		func(e *entry, name string) int { return strings.Compare(e.name, name) })
	if taken {
		return fmt.Errorf("health: there is a check %q already", name)
	}
	r.checks = slices.Insert(r.checks, at, &entry{name: name, kind: kind, timeout: timeout, check: check})
	return nil
}

// Result is a check's result.
type Result struct {
	Name string
	Err  error  // nil if the check passed
	Text string // of a Well; mostly empty
}

// Run concurrently runs all checks of a kind (or of several, if their bits are set), except those to leave out, and
// waits for each no longer than its timeout. The results are in the order of names.
func (r *Registry) Run(ctx context.Context, kind Kind, leaveOut func(name string) bool) []Result {
	r.mu.Lock()
	var chosen []*entry
	for _, e := range r.checks {
		if e.kind&kind != 0 && (leaveOut == nil || !leaveOut(e.name)) {
			chosen = append(chosen, e)
		}
	}
	r.mu.Unlock()

	runs := make([]*run, len(chosen))
	for i, e := range chosen {
		runs[i] = e.start()
	}
	results := make([]Result, len(chosen))
	for i, e := range chosen {
		results[i] = Result{Name: e.name, Err: e.await(ctx, runs[i])}
		if well, ok := results[i].Err.(Well); ok { //nolint:errorlint // see Well
			results[i].Err, results[i].Text = nil, words.Clip(string(well), maxConditionText)
		}
	}
	return results
}

// start begins a run, or joins the current one.
func (e *entry) start() *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		r := &run{since: time.Now(), done: make(chan struct{})}
		e.running = r
		go e.execute(r)
	}
	return e.running
}

// execute runs the check. A check that ignores its context keeps one goroutine.
func (e *entry) execute(r *run) {
	ctx, cancel := context.WithTimeout(context.Background(), e.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // a user's check must not end the job
			r.err = fmt.Errorf("the check panicked: %v", p)
		}
		e.mu.Lock()
		e.running = nil
		e.mu.Unlock()
		close(r.done)
	}()
	r.err = e.check(ctx)
}

func (e *entry) await(ctx context.Context, r *run) error {
	select {
	case <-r.done:
		if errors.Is(r.err, context.DeadlineExceeded) {
			return fmt.Errorf("no answer within %s: %w", e.timeout, r.err)
		}
		return r.err
	case <-time.After(time.Until(r.since.Add(e.timeout))):
		return fmt.Errorf("no answer for %s (it has %s)", words.Round(time.Since(r.since)), e.timeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkName checks a name, which becomes part of a URL.
func checkName(what, name string) error {
	foreign := strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
	if name == "" || len(name) > 63 || foreign {
		return fmt.Errorf("health: %s %q: a name has lower-case letters, digits, '-' and '_' only, from 1 "+
			"to 63 of them",
			what, name)
	}
	return nil
}

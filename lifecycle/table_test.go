package lifecycle

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

// wantNext is the design in prose, written independently of the table: what call c does to a communicator in state s.
func wantNext(s State, c Call) (State, Code) {
	isInit := c == CallInitRank || c == CallInitRankConfig || c == CallInitRankScalable || c == CallInitAll
	isGroup := c == CallGroupStart || c == CallGroupEnd
	asks := c == CallAsyncError || c == CallWait

	// A communicator is initialized once. Before that there is nothing to call anything on, but groups may hold Inits.
	if isInit {
		if s == StateNone {
			return StateInitializing, CodeOK
		}
		return s, CodeInvalidUsage
	}
	if s == StateNone {
		if isGroup {
			return s, CodeOK
		}
		return s, CodeInvalidArgument
	}

	// Abort is legal until nothing is left to abort, and Destroy once the communicator exists and was not given up.
	if c == CallAbort {
		switch s {
		case StateDestroyed:
			return s, CodeDestroyed
		case StateAborting, StateAborted:
			return s, CodeAborted
		default:
			return StateAborting, CodeOK
		}
	}
	if c == CallDestroy && s.Live() && s != StateInitializing {
		return StateDestroying, CodeOK
	}

	switch s {
	case StateInitializing: // only asking and grouping; the rest is too early
		if asks || isGroup {
			return s, CodeOK
		}
		return s, CodeInitializing
	case StateReady: // everything
		switch c {
		case CallFinalize:
			return StateFinalizing, CodeOK
		case CallRevoke:
			return StateRevoked, CodeOK
		default:
			return s, CodeOK
		}
	case StateFinalizing, StateFinalized: // only asking
		if asks {
			return s, CodeOK
		}
		return s, CodeFinalized
	case StateDestroying, StateDestroyed: // nothing
		return s, CodeDestroyed
	case StateAborting, StateAborted: // nothing
		return s, CodeAborted
	case StateFailed: // asking, and making one without the broken ranks
		switch {
		case asks, c == CallShrink:
			return s, CodeOK
		case c == CallRevoke:
			return StateRevoked, CodeOK
		}
		return s, CodeFailed
	case StateRevoked: // asking, and making smaller ones from it
		if asks || c == CallShrink || c == CallSplit {
			return s, CodeOK
		}
		return s, CodeRevoked
	default:
		panic("no such state")
	}
}

func TestNext(t *testing.T) {
	for _, s := range States() {
		for _, c := range Calls() {
			state, code := Next(s, c)
			if wantState, wantCode := wantNext(s, c); state != wantState || code != wantCode {
				t.Errorf("Next(%v, %v) = %v, %v; want %v, %v", s, c, state, code, wantState, wantCode)
			}
		}
	}
}

func TestAfter(t *testing.T) {
	effective := map[string]State{
		"initializing init_done":     StateReady,
		"initializing init_failed":   StateFailed,
		"initializing async_failure": StateFailed,
		"ready async_failure":        StateFailed,
		"finalizing async_failure":   StateFailed,
		"finalizing finalize_done":   StateFinalized,
		"destroying destroy_done":    StateDestroyed,
		"aborting abort_done":        StateAborted,
	}
	for _, s := range States() {
		for _, e := range Events() {
			want, ok := effective[s.String()+" "+e.String()]
			if !ok {
				want = s
			}
			if got := After(s, e); got != want {
				t.Errorf("After(%v, %v) = %v; want %v", s, e, got, want)
			}
		}
	}
}

func TestTablesAreComplete(t *testing.T) {
	for _, s := range States() {
		for _, c := range Calls() {
			if calls[c][s] == 0 {
				t.Errorf("the table says nothing of call %v in state %v", c, s)
			}
		}
		for _, e := range Events() {
			if events[e][s] == 0 {
				t.Errorf("the table says nothing of event %v in state %v", e, s)
			}
		}
	}
}

func TestOutsideOfTheTables(t *testing.T) {
	for _, s := range append(States(), numStates, 255) {
		for _, c := range []Call{CallNone, numCalls, 255} {
			if state, code := Next(s, c); state != s || code != CodeInvalidArgument {
				t.Errorf("Next(%v, %v) = %v, %v; want %v, invalid_argument", s, c, state, code, s)
			}
		}
		for _, e := range []Event{EventNone, numEvents, 255} {
			if state := After(s, e); state != s {
				t.Errorf("After(%v, %v) = %v; want %v", s, e, state, s)
			}
		}
	}
	for _, s := range []State{numStates, 255} {
		if state, code := Next(s, CallDestroy); state != s || code != CodeInvalidArgument {
			t.Errorf("Next(%v, destroy) = %v, %v; want %v, invalid_argument", s, state, code, s)
		}
	}
}

// TestTableDocument keeps table.md, for people and other languages, equal to the tables. Datadriven's -rewrite updates
// it.
func TestTableDocument(t *testing.T) {
	datadriven.RunTestFromString(t, "table.md\n----\n", func(t *testing.T, d *datadriven.TestData) string {
		if d.Rewrite {
			if err := os.WriteFile(d.Cmd, []byte(tableDocument()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		recorded, err := os.ReadFile(d.Cmd)
		if err != nil {
			t.Fatal(err)
		}
		return cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(tableDocument(), "\n"))
	})
}

func tableDocument() string {
	var b strings.Builder
	b.WriteString("<!-- Generated from table.go and code.go by go generate; do not edit. -->\n\n" +
		"# What a communicator may do\n\n" +
		"Each row is a call, each column the communicator's state before it. `✓` means that the call is legal and\n" +
		"changes no state, `→ state` that it is legal and leads to that state. A word alone is the code of the\n" +
		"error that the call returns; nothing changes. On a non-blocking communicator, the call returns\n" +
		"`in_progress` instead of `initializing`.\n\n" +
		"In `destroying`, Destroy waits for the operations in flight, and nothing has been freed yet. To its user\n" +
		"the communicator is already `destroyed`. Only Abort is legal: it is the way out of a Destroy that hangs.\n" +
		"In `aborting`, Abort is cancelling the operations in flight, and no call is legal.\n\n")
	header(&b, "call")
	for _, c := range Calls() {
		fmt.Fprintf(&b, "| **%v** |", c)
		for _, s := range States() {
			switch to, code := Next(s, c); {
			case code != CodeOK:
				fmt.Fprintf(&b, " %v |", code)
			case to == s:
				b.WriteString(" ✓ |")
			default:
				fmt.Fprintf(&b, " → %v |", to)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n# What happens to a communicator\n\n" +
		"Each row is an event that the runtime reports. An empty cell means that the event comes too late and " +
		"changes nothing.\n\n")
	header(&b, "event")
	for _, e := range Events() {
		fmt.Fprintf(&b, "| **%v** |", e)
		for _, s := range States() {
			if to := After(s, e); to != s {
				fmt.Fprintf(&b, " → %v |", to)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n# Codes\n\n| number | name | ncclResult_t |\n|---:|---|---:|\n")
	for _, c := range Codes() {
		fmt.Fprintf(&b, "| %d | %v | %d |\n", c, c, c.NCCL())
	}
	return b.String()
}

func header(b *strings.Builder, corner string) {
	fmt.Fprintf(b, "| %s |", corner)
	for _, s := range States() {
		fmt.Fprintf(b, " %v |", s)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(States())) + "\n")
}

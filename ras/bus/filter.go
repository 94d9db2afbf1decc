package bus

import (
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Filter chooses events. The zero value takes all.
type Filter struct {
	// Types are beginnings of types: "dev.carillon.verdict." or, for short, "verdict."; none means all.
	Types []string
	// Least is the lowest severity. A condition that has reached it is followed to its end, whatever the severity of
	// what comes later.
	Least Severity
}

// Match tells whether the filter takes the event.
func (f *Filter) Match(e *Event) bool {
	if max(e.Severity, e.peak) < f.Least {
		return false
	}
	if len(f.Types) == 0 {
		return true
	}
	short := strings.TrimPrefix(e.Type, semconv.EventPrefix)
	return slices.ContainsFunc(f.Types, func(prefix string) bool {
		return strings.HasPrefix(short, strings.TrimPrefix(prefix, semconv.EventPrefix))
	})
}

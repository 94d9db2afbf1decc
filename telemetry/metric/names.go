package metric

import (
	"strings"
	"sync"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

const (
	maxNames     = 16  // communicator names that get series of their own
	maxNameBytes = 128 // of a label's value; a tape's names are shorter
)

// names maps communicators' names to label values. Safe for concurrent use.
type names struct {
	mu    sync.Mutex
	known map[string]string
}

// label returns the value for a name: the name itself while there is room, semconv.LabelValueOther for later names.
func (n *names) label(name string) string {
	if name == "" {
		return semconv.LabelValueUnnamed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if value, ok := n.known[name]; ok {
		return value
	}
	if len(n.known) >= maxNames {
		return semconv.LabelValueOther
	}
	value := strings.ToValidUTF8(name, "\uFFFD") // Prometheus refuses anything else
	if len(value) > maxNameBytes {
		value = strings.ToValidUTF8(value[:maxNameBytes], "")
	}
	n.known[strings.Clone(name)] = value
	return value
}

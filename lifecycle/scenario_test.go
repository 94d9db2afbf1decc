package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays the files in testdata. The clock is at 12:00:00 and goes on by a second with each command. The
// commands:
//
//	open COMM [rank=R of=N] [nonblocking]   begins a life; it is initializing
//	CALL COMM [at=(FUNC, FILE, LINE)]       makes a call (an operation is checked, any other call is done)
//	event EVENT COMM [cause=CODE rank=R]    signals an event, caused by a PeerError of that code
//	retire COMM                             gives its slot back
//	lookup COMM                             looks for its handle
//	live                                    lists what has not retired
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := scenario{NewRegistry(), map[string]*Life{}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			defer func() { s.clock = s.clock.Add(time.Second) }()
			return s.run(t, d)
		})
	})
}

type scenario struct {
	registry *Registry
	lives    map[string]*Life
	clock    time.Time
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "live":
		return s.live()
	case "open":
		return s.open(t, d)
	case "event":
		return s.event(t, d)
	case "retire":
		life := s.life(t, d, 0)
		return map[bool]string{true: "its handle is stale", false: "no: " + life.State().String()}[life.Retire()]
	case "lookup":
		life := s.life(t, d, 0)
		found, err := s.registry.Lookup(life.Handle())
		if err != nil {
			return err.Error()
		}
		if found != life {
			t.Error("found another life")
		}
		return "found: " + life.State().String()
	default:
		return s.call(t, d)
	}
}

// life finds the life that an argument names.
func (s *scenario) life(t *testing.T, d *datadriven.TestData, arg int) *Life {
	name := word(t, d, arg)
	life := s.lives[name]
	if life == nil {
		d.Fatalf(t, "%s was not opened", name)
	}
	return life
}

func word(t *testing.T, d *datadriven.TestData, arg int) string {
	if len(d.CmdArgs) <= arg {
		d.Fatalf(t, "%s what?", d.Cmd)
	}
	return d.CmdArgs[arg].Key
}

func (s *scenario) open(t *testing.T, d *datadriven.TestData) string {
	name := word(t, d, 0)
	info := Info{Name: name, Size: 1, Call: CallInitRank, NonBlocking: d.HasArg("nonblocking")}
	copy(info.ID[:], name)
	d.MaybeScanArgs(t, "rank", &info.Rank)
	d.MaybeScanArgs(t, "of", &info.Size)
	life := s.registry.Open(info)
	s.lives[name] = life
	return fmt.Sprintf("%v, handle %v", life.State(), life.Handle())
}

func (s *scenario) call(t *testing.T, d *datadriven.TestData) string {
	call, life := named(t, d, Calls(), d.Cmd), s.life(t, d, 0)
	site := Site{Time: s.clock}
	if d.MaybeScanArgs(t, "at", &site.Func, &site.File, &site.Line) {
		site.Goroutine = 1
	}
	if call.IsOperation() {
		if err := life.Check(call); err != nil {
			return err.Error()
		}
		return "ok"
	}
	state, err := life.Do(call, site)
	if err != nil {
		return err.Error()
	}
	return state.String()
}

func (s *scenario) event(t *testing.T, d *datadriven.TestData) string {
	event, life := named(t, d, Events(), word(t, d, 0)), s.life(t, d, 1)
	var cause error
	var code string
	if d.MaybeScanArgs(t, "cause", &code) {
		peer := &PeerError{Code: named(t, d, Codes(), code)}
		d.ScanArgs(t, "rank", &peer.Rank)
		cause = peer
	}
	state, changed := life.Signal(event, cause)
	if !changed {
		return fmt.Sprintf("%v, as before", state)
	}
	return state.String()
}

// named finds the value that has a name.
func named[T fmt.Stringer](t *testing.T, d *datadriven.TestData, all []T, name string) T {
	for _, v := range all {
		if v.String() == name {
			return v
		}
	}
	d.Fatalf(t, "%q is none of %v", name, all)
	panic("unreachable")
}

func (s *scenario) live() string {
	var all []string
	for _, life := range live(s.registry) {
		info := life.Info()
		all = append(all, fmt.Sprintf("%s (rank %d of %d) %v", info.Name, info.Rank, info.Size, life.State()))
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// list is what an agent that tells of other processes says of them: which there are, and what became of each.
type list struct {
	Turn    uint64   `json:"turn"` // of two lists of one agent, the later one counts
	Members []listed `json:"members"`
	at      time.Time
}

// listed is one process of a list.
type listed struct {
	PID     int           `json:"pid"`
	Rank    int           `json:"rank"`
	JobSize int           `json:"job_size,omitempty"`
	State   mesh.State    `json:"state"`
	Cause   mesh.Cause    `json:"cause,omitempty"`
	Exit    process.Exit  `json:"exit,omitzero"`
	Age     time.Duration `json:"age,omitempty"` // for how long it has been so
}

// maxListed is how many processes of a machine others are told of, so that a list fits into a question: those that run,
// and those that ended last.
const maxListed = 96

// listOf lists processes without their ages.
func listOf(members []mesh.Status) []listed {
	members = slices.Clone(members)
	gone := func(s *mesh.Status) int {
		if s.State == mesh.Dead || s.State == mesh.Left {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(members, func(a, b mesh.Status) int {
		return cmp.Or(cmp.Compare(gone(&a), gone(&b)), b.Since.Compare(a.Since)*gone(&a))
	})
	all := make([]listed, 0, len(members))
	for _, s := range members[:min(len(members), maxListed)] {
		m := &s.Member
		all = append(all, listed{
			PID: m.PID, Rank: m.Rank, JobSize: m.JobSize, State: s.State, Cause: s.Cause, Exit: s.Exit,
		})
	}
	return all
}

// statuses are the processes of a list of keeper's, by what is known of keeper itself now. While that is out of reach,
// so are they; and when it is gone, nobody tells what they do: they may well run.
func (l *list) statuses(keeper *mesh.Status) []mesh.Status {
	all := make([]mesh.Status, 0, len(l.Members))
	for _, p := range l.Members {
		s := mesh.Status{
			Member: keeper.Member.Keep(process.ID{PID: p.PID}, p.Rank, p.JobSize), State: p.State, Cause: p.Cause,
			Exit: p.Exit, Since: l.at.Add(-p.Age), By: keeper.Member.Name,
		}
		switch ended := s.State == mesh.Dead || s.State == mesh.Left; {
		case ended || keeper.State == mesh.Alive:
		case keeper.State == mesh.Suspect:
			if s.State == mesh.Alive {
				s.State, s.Since, s.Cause = mesh.Suspect, keeper.Since, keeper.Cause
			}
		case keeper.State == mesh.Unreachable:
			s.State, s.Since, s.Cause = mesh.Unreachable, keeper.Since, keeper.Cause
		default:
			s.State, s.Since, s.Cause = mesh.Unreachable, keeper.Since, mesh.CauseUntold
		}
		all = append(all, s)
	}
	return all
}

// check says what is wrong with a list that another agent made, of which the version may be another one.
func (l *list) check() error {
	if l == nil || len(l.Members) > maxListed {
		return errors.New("no list of processes, or too long a one")
	}
	for _, p := range l.Members {
		if p.State > mesh.Left || p.Cause > mesh.CauseUntold || p.Rank < -1 {
			return fmt.Errorf("a process that is not known to be possible: %+v", p)
		}
	}
	return nil
}

// hearList takes an agent's list.
func (a *Agent) hearList(from string, l *list) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.lists[from]; old != nil && old.Turn >= l.Turn {
		return
	}
	l.at = time.Now()
	a.lists[from] = l
}

// keptElsewhere are the processes that other agents tell of. One that two tell of is told of by the one that is there.
func (a *Agent) keptElsewhere(agents []mesh.Status) (all []mesh.Status) {
	agents = slices.Clone(agents)
	slices.SortStableFunc(agents, func(x, y mesh.Status) int { return cmp.Compare(x.State, y.State) })
	a.mu.Lock()
	defer a.mu.Unlock()
	known := map[string]bool{}
	for i := range agents {
		known[agents[i].Member.Name] = true
		if l := a.lists[agents[i].Member.Name]; l != nil && agents[i].Member.Keeps() {
			all = append(all, l.statuses(&agents[i])...)
		}
	}
	maps.DeleteFunc(a.lists, func(name string, l *list) bool { // one may come a moment before its agent does
		return !known[name] && time.Since(l.at) > time.Minute
	})
	return all
}

// changes tells what happened to processes that other agents tell of, since the last call.
func (a *Agent) changes(members []mesh.Status) {
	states := map[string]mesh.State{}
	for _, s := range members {
		if s.By == "" || s.Member.Keeper != s.By || s.Member.Keeps() { // the mesh, or its own Keeper, tells
			continue
		}
		name := s.Member.Name
		states[name] = s.State
		switch was, known := a.states[name]; {
		case !known && s.State == mesh.Alive:
			a.memberEvent(mesh.Event{Status: s, Kind: mesh.Joined})
		case known && was != s.State:
			passing := was == mesh.Suspect && s.State == mesh.Alive
			a.memberEvent(mesh.Event{Status: s, Kind: s.State.Kind(), Passing: passing})
		}
	}
	a.states = states
}

// Members is what is known of the job's processes: of this one and others of the mesh, and of those that agents tell
// of, this one among them.
func (a *Agent) Members() []mesh.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.members), func(s mesh.Status) bool { return s.Member.Keeps() })
}

// shared tells which agents have heard a list.
type shared struct {
	turn uint64
	by   []string
}

// share tells the other agents of the processes that this one tells of: all if that has changed, else those that have
// not heard it. It returns at once; shared follows, if there was anything to tell.
func (a *Agent) share(ctx context.Context) {
	to := a.unaware()
	if len(to) == 0 || a.sharing {
		return
	}
	a.sharing = true
	a.beside(func() Input { return a.tellList(ctx, to) })
}

// unaware are the agents that have not heard the list as it is now.
func (a *Agent) unaware() (names []string) {
	m := a.mesh.Load()
	if m == nil || a.cfg.Kept == nil {
		return nil
	}
	a.mu.Lock()
	if now := listOf(a.cfg.Kept()); !slices.Equal(now, a.own.Members) {
		a.own = list{Turn: a.own.Turn + 1, Members: now}
	}
	turn := a.own.Turn
	a.mu.Unlock()
	heard := map[string]uint64{} // without those that are gone: if they come back, they may have forgotten
	for _, s := range m.Members() {
		name, answers := s.Member.Name, s.State == mesh.Alive || s.State == mesh.Suspect
		if !s.Member.Keeps() || name == a.self.Name || !answers {
			continue
		}
		if heard[name] = a.heard[name]; heard[name] != turn {
			names = append(names, name)
		}
	}
	a.heard = heard
	return names
}

// turn is that of the list as the others are told.
func (a *Agent) turn() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own.Turn
}

// tellList tells agents the list.
func (a *Agent) tellList(ctx context.Context, to []string) shared {
	ages := map[int]time.Duration{}
	for _, s := range a.cfg.Kept() {
		ages[s.Member.PID] = time.Since(s.Since)
	}
	a.mu.Lock()
	l := list{Turn: a.own.Turn, Members: slices.Clone(a.own.Members)}
	a.mu.Unlock()
	for i := range l.Members {
		l.Members[i].Age = ages[l.Members[i].PID]
	}
	done := shared{turn: l.Turn}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers, err := a.mesh.Load().Ask(ctx, (&message{Kind: tellKept, From: a.self.Name, Kept: &l}).encode(), to...)
	if err != nil {
		return done
	}
	for ans := range answers {
		if ans.By == ans.From {
			done.by = append(done.by, ans.From)
		}
	}
	return done
}

// kept are the notes of processes that this one tells of, those that are known; of all, if there are no names.
func (a *Agent) kept(names ...string) []verdict.Note {
	var notes []verdict.Note
	for _, s := range a.cfg.Kept() {
		if len(names) > 0 && !slices.Contains(names, s.Member.Name) {
			continue
		}
		if n, known := a.cfg.Local(s.Member); known {
			notes = append(notes, n)
		}
	}
	return notes
}

// tellers are the members to ask for the notes of processes that this one doesn't tell of itself.
func (a *Agent) tellers(names []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := map[string]bool{}
	for _, s := range a.members {
		if slices.Contains(names, s.Member.Name) {
			asked[cmp.Or(s.Member.Keeper, s.Member.Name)] = true
		}
	}
	if a.cfg.Kept != nil {
		delete(asked, a.self.Name)
	}
	return slices.Sorted(maps.Keys(asked))
}

// tells tells whether the member called by tells of the process called of.
func (a *Agent) tells(by, of string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.members, func(s mesh.Status) bool {
		return s.Member.Name == of && s.Member.Keeper == by
	})
}

// encodeNotes is the answer of an agent that tells of others: a list of notes, each of which has its share of the room.
func encodeNotes(notes []verdict.Note, about []lifecycle.CommID) []byte {
	texts := []json.RawMessage{}
	for i := range notes {
		room := mesh.MaxAnswer/len(notes) - 1 // a comma
		if text := encodeNote(&notes[i], about, room-1); text != nil {
			texts = append(texts, text)
		}
	}
	b, err := json.Marshal(texts)
	if err != nil { // each was encoded before
		return nil
	}
	return b
}

// decodeNotes reads what the member called name answered: its note, or those of the processes that it tells of, which
// tells says.
func decodeNotes(name string, b []byte, tells func(of string) bool) []verdict.Note {
	var notes []verdict.Note
	if err := json.Unmarshal(b, &notes); err != nil {
		n, err := decodeNote(name, b)
		if err != nil { // the member counts as one that didn't answer
			return nil
		}
		return []verdict.Note{n}
	}
	return slices.DeleteFunc(notes, func(n verdict.Note) bool { return !tells(n.Member) })
}

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

// list is the list of the processes for which an agent answers, with their states.
type list struct {
	Turn    uint64   `json:"turn"` // grows with each change
	Members []listed `json:"members"`
	at      time.Time
}

// listed is one process of a list.
type listed struct {
	PID     int           `json:"pid"`
	Before  uint          `json:"before,omitempty"` // as mesh.Member
	Host    string        `json:"host,omitempty"`   // if it isn't the agent's
	Rank    int           `json:"rank"`
	JobSize int           `json:"job_size,omitempty"`
	State   mesh.State    `json:"state"`
	Cause   mesh.Cause    `json:"cause,omitempty"`
	Exit    process.Exit  `json:"exit,omitzero"`
	Age     time.Duration `json:"age,omitempty"` // of the state
}

// maxListed is the most processes in a list, so that it fits into a question. Processes that run come first, then those
// that ended last.
const maxListed = 96

// same tells whether two entries differ in their ages alone.
func (p listed) same(o listed) bool {
	p.Age = o.Age
	return p == o
}

// listOf lists processes.
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
		p := listed{
			PID: m.PID, Before: m.Before, Rank: m.Rank, JobSize: m.JobSize,
			State: s.State, Cause: s.Cause, Exit: s.Exit, Age: time.Since(s.Since),
		}
		if m.Machine != "" {
			p.Host = m.Host
		}
		all = append(all, p)
	}
	return all
}

// statuses are the processes of keeper's list, given the keeper's own state. While the keeper is unreachable, so are
// its processes. When it is gone, their state is not known: they may well run.
func (l *list) statuses(keeper *mesh.Status) []mesh.Status {
	all := make([]mesh.Status, 0, len(l.Members))
	for _, p := range l.Members {
		s := mesh.Status{
			Member: keeper.Member.Keep(p.Host, process.ID{PID: p.PID}, p.Rank, p.JobSize).After(p.Before),
			State:  p.State, Cause: p.Cause, Exit: p.Exit, Since: l.at.Add(-p.Age), By: keeper.Member.Name,
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

// check says what is wrong with a list of another agent, which may be of another version.
func (l *list) check() error {
	if l == nil || len(l.Members) > maxListed {
		return errors.New("the list of processes is missing or too long")
	}
	for _, p := range l.Members {
		if p.State > mesh.Left || p.Cause > mesh.CauseUntold || p.Rank < -1 {
			return fmt.Errorf("a process has an unknown state, cause or rank: %+v", p)
		}
	}
	return nil
}

// storeList stores another agent's list.
func (a *Agent) storeList(from string, l *list) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.lists[from]; old != nil && old.Turn >= l.Turn {
		return
	}
	l.at = time.Now()
	a.lists[from] = l
}

// keptElsewhere are the processes for which other agents answer. If two agents list a process, the reachable agent's
// list counts.
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
	maps.DeleteFunc(a.lists, func(name string, l *list) bool { // a list may come shortly before its agent is a member
		return !known[name] && time.Since(l.at) > time.Minute
	})
	return all
}

// changes publishes what happened since the last call to processes for which other agents answer.
func (a *Agent) changes(members []mesh.Status) {
	states := map[string]mesh.State{}
	for _, s := range members {
		if s.By == "" || s.Member.Keeper != s.By || s.Member.Keeps() { // the mesh or this agent's Keeper reports these
			continue
		}
		name := s.Member.Name
		states[name] = s.State
		switch was, known := a.states[name]; {
		case !known && s.State == mesh.Alive:
			a.memberEvent(mesh.Event{Status: s, Joined: true})
		case known && was != s.State:
			passing := was == mesh.Suspect && s.State == mesh.Alive
			a.memberEvent(mesh.Event{Status: s, Passing: passing})
		}
	}
	a.states = states
}

// Members are the job's processes: the members of the mesh, without agents, and the processes for which agents answer.
func (a *Agent) Members() []mesh.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.members), func(s mesh.Status) bool { return s.Member.Keeps() })
}

// shared is the input that says which agents have received a list.
type shared struct {
	turn uint64
	by   []string
}

// share sends this agent's list to the agents that don't have the current one. It returns at once; shared follows if
// there was anything to send.
func (a *Agent) share(ctx context.Context) {
	to := a.outdated()
	if len(to) == 0 || a.sharing {
		return
	}
	a.sharing = true
	a.background(func() Input { return a.tellList(ctx, to) })
}

// outdated are the agents that don't have the current list.
func (a *Agent) outdated() (names []string) {
	m := a.mesh.Load()
	if m == nil || a.cfg.Kept == nil {
		return nil
	}
	now := listOf(a.cfg.Kept()) // unlocked: it waits for a Keeper that may be calling this agent
	a.mu.Lock()
	if !slices.EqualFunc(now, a.own.Members, listed.same) {
		a.own = list{Turn: a.own.Turn + 1, Members: now}
	}
	turn := a.own.Turn
	a.mu.Unlock()
	heard := map[string]uint64{} // without agents that are gone: after a restart they need the list again
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

// turn is that of the list as sent to the others.
func (a *Agent) turn() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own.Turn
}

// tellList sends the list to agents.
func (a *Agent) tellList(ctx context.Context, to []string) shared {
	l := list{Turn: a.turn(), Members: listOf(a.cfg.Kept())}
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

// kept are the notes of the processes for which this agent answers: of those named, or of all if names is empty.
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

// respondents are the members to ask for the notes of processes for which this agent doesn't answer.
func (a *Agent) respondents(names []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := map[string]bool{}
	for _, s := range a.members {
		if slices.Contains(names, s.Member.Name) && !isMember(a.ended, s.Member.Name) {
			asked[cmp.Or(s.Member.Keeper, s.Member.Name)] = true
		}
	}
	if a.cfg.Kept != nil {
		delete(asked, a.self.Name)
	}
	return slices.Sorted(maps.Keys(asked))
}

// answersFor tells whether the member named by answers for the process named of.
func (a *Agent) answersFor(by, of string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.members, func(s mesh.Status) bool {
		return s.Member.Name == of && s.Member.Keeper == by
	})
}

// encodeNotes is the answer of an agent that answers for others: a list of notes, each limited to its share of the
// room.
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

// decodeNotes reads the answer of the member called name: its note, or notes of processes for which it answers, as
// answersFor says.
func decodeNotes(name string, b []byte, answersFor func(of string) bool) []verdict.Note {
	var notes []verdict.Note
	if err := json.Unmarshal(b, &notes); err != nil {
		n, err := decodeNote(name, b)
		if err != nil { // the member counts as one that didn't answer
			return nil
		}
		return []verdict.Note{n}
	}
	return slices.DeleteFunc(notes, func(n verdict.Note) bool { return !answersFor(n.Member) })
}

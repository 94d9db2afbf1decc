// Package view puts together what several processes tell of their job, and shows it: as a report for programs, as text,
// and as a screen of a terminal.
//
//	snapshots (a process each) ─┐
//	events, as they happen ─────┼──► View ──► Report ──► JSON, text, screen
//	tapes of this host ─────────┘
//
// All processes know the same verdicts and ranks. Conditions and communicators each process tells of itself alone.
// What comes from other processes can't control the terminal: control characters are shown, not obeyed.
package view

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// fresh is how long what an event told goes before what a snapshot says: snapshots are a second old, or two.
const fresh = 2 * time.Second

// View is what is known of a job at a moment. It belongs to one goroutine. The zero View knows nothing.
type View struct {
	job      string
	size     int
	verdicts map[string]health.Verdict
	ranks    map[rankKey]health.Rank
	touched  map[any]time.Time // by verdict's id and rankKey: when an event told of it last
	told     map[rankKey]part  // what each process says of itself
	local    []Local           // nil: nothing but the snapshots tells of communicators
	heard    time.Time         // when anybody told anything last
}

func (v *View) begin() {
	if v.told == nil {
		v.verdicts, v.ranks, v.touched, v.told = map[string]health.Verdict{}, map[rankKey]health.Rank{},
			map[any]time.Time{}, map[rankKey]part{}
	}
}

// Job says the job's name, for the time until somebody else does.
func (v *View) Job(name string) { v.job = name }

type part struct {
	*endpoint.Snapshot
	at         time.Time
	unanswered bool // it was asked since, in vain
}

// rankKey is a process: a rank may be taken by another one, later.
type rankKey struct {
	rank int
	pid  int
	host string
}

// Local is a communicator as the tape of a process of this host shows it.
type Local struct {
	PID  int
	Comm health.Comm
}

// Merge takes what processes told at one time. Verdicts and ranks of which an event told a moment ago stay as that has
// them: a snapshot may be older.
func (v *View) Merge(now time.Time, snapshots ...*endpoint.Snapshot) {
	if len(snapshots) == 0 {
		return
	}
	v.begin()
	v.heard = now
	maps.DeleteFunc(v.touched, func(_ any, at time.Time) bool { return now.Sub(at) > fresh })
	verdicts, ranks := map[string]health.Verdict{}, map[rankKey]health.Rank{}
	for _, s := range snapshots {
		v.job, v.size = s.Job, s.Size
		v.told[keyOf(s)] = part{Snapshot: s, at: now}
		for i := range s.Verdicts {
			verdicts[s.Verdicts[i].ID] = s.Verdicts[i]
		}
		for _, r := range s.Ranks {
			if key := (rankKey{r.Rank, r.PID, r.Host}); ranks[key].State == "" || r.Since.After(ranks[key].Since) {
				ranks[key] = r
			}
		}
	}
	for id, known := range v.verdicts {
		if v.recent(id) {
			verdicts[id] = known
		}
	}
	maps.DeleteFunc(verdicts, func(id string, _ health.Verdict) bool {
		_, known := v.verdicts[id]
		return !known && v.recent(id) // it is withdrawn
	})
	for key, known := range v.ranks {
		if v.recent(key) {
			ranks[key] = known
		}
	}
	v.verdicts, v.ranks = verdicts, ranks
	maps.DeleteFunc(v.told, func(key rankKey, _ part) bool { return gone(v.ranks[key].State) })
}

func keyOf(s *endpoint.Snapshot) rankKey { return rankKey{s.Rank, s.PID, s.Host} }

func gone(state string) bool { return state == "dead" || state == "left" }

func (v *View) recent(key any) bool { _, ok := v.touched[key]; return ok }

// Event takes an event that tells of a verdict or of a rank. One that happened a while ago, as a stream begins with,
// says nothing that a snapshot doesn't say better: the ages in its text have stood still since.
func (v *View) Event(now time.Time, ev *bus.Event) {
	v.begin()
	v.heard = now
	if now.Sub(ev.Time) > fresh && len(v.told) > 0 {
		return
	}
	switch ev.Type {
	case semconv.EventVerdictOpened, semconv.EventVerdictChanged, semconv.EventVerdictWithdrawn:
		v.verdictEvent(now, ev)
		return
	}
	state, ok := states[ev.Type]
	var data struct {
		Host        string
		PID         int
		Cause, Exit string
	}
	if !ok || json.Unmarshal(ev.JSON(), &data) != nil {
		return
	}
	for key, r := range v.ranks {
		if key.pid != data.PID || key.host != data.Host {
			continue
		}
		v.touched[key] = now
		if r.State != state {
			r.State, r.Since, r.Text = state, ev.Time, cmp.Or(data.Exit, data.Cause)
			if state == stateAlive {
				r.Text = ""
			}
			v.ranks[key] = r
		}
		if gone(state) {
			delete(v.told, key)
		}
	}
}

const stateAlive = "alive"

var states = map[string]string{
	semconv.EventRankJoined: stateAlive, semconv.EventRankLeft: "left", semconv.EventRankDead: "dead",
	semconv.EventRankStopped: "stopped",
	semconv.EventRankResumed: stateAlive, semconv.EventRankUnreachable: "unreachable",
}

func (v *View) verdictEvent(now time.Time, ev *bus.Event) {
	var data struct {
		ID string `json:"id"`
		verdict.Verdict
	}
	if json.Unmarshal(ev.JSON(), &data) != nil || data.ID == "" {
		return
	}
	v.touched[data.ID] = now
	if ev.Stage == bus.Closed {
		delete(v.verdicts, data.ID)
		return
	}
	known, open := v.verdicts[data.ID]
	if !open {
		known = health.Verdict{ID: data.ID, Since: ev.Time}
	}
	known.Verdict = data.Verdict
	v.verdicts[data.ID] = known
}

// Tapes says what the tapes of this host show of communicators.
func (v *View) Tapes(comms []Local) { v.local = comms }

// Sound tells whether the process that a snapshot was asked of runs, as far as the others know.
func (v *View) Sound(of *endpoint.Snapshot) bool {
	r, ok := v.ranks[keyOf(of)]
	return !ok || r.State == stateAlive || r.State == "suspect"
}

// Report is what is known at a moment.
func (v *View) Report(now time.Time) *Report {
	r := &Report{Schema: health.Schema, Time: now.UTC(), Heard: v.heard.UTC(), Job: v.job, Size: v.size}
	r.Verdicts = slices.SortedFunc(maps.Values(v.verdicts), func(a, b health.Verdict) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	r.Ranks = slices.SortedFunc(maps.Values(v.ranks), func(a, b health.Rank) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID))
	})
	g := gathering{v.size, map[lifecycle.CommID]*Comm{}}
	var conditions []told
	for key, p := range v.told {
		r.Told = append(r.Told, p.Rank)
		old, stale := v.staleness(now, key, &p)
		age := 0.0
		if stale {
			age = old.Age
		}
		for _, c := range p.Conditions {
			conditions = append(conditions, told{p.Rank, c, age})
		}
		taped := v.local != nil && slices.ContainsFunc(v.local, func(l Local) bool { return l.PID == key.pid })
		if stale && (!taped || len(p.Conditions) > 0) {
			r.Stale = append(r.Stale, old)
		}
		if taped {
			continue // its tape is newer
		}
		for i := range p.Comms {
			g.add(&p.Comms[i], p.Rank, now.Sub(p.at).Seconds(), stale)
		}
	}
	for i := range v.local {
		g.add(&v.local[i].Comm, v.rankOf(v.local[i].PID), 0, false)
	}
	slices.Sort(r.Told)
	slices.SortFunc(r.Stale, func(a, b Stale) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Host, b.Host))
	})
	r.Unwatched = v.unwatched()
	r.Conditions = together(conditions)
	r.Comms = g.list()
	r.Status = r.status()
	return r
}

// rankOf is the rank in the job of a process of this host; -1 if it isn't known, or not the only such one.
func (v *View) rankOf(pid int) int {
	rank := -1
	for key := range v.ranks {
		if key.pid == pid {
			if rank >= 0 && key.rank != rank {
				return -1
			}
			rank = key.rank
		}
	}
	return rank
}

// unwatched is why nobody looks for what holds the job up; empty if one process does, since all of those know the same.
func (v *View) unwatched() (why string) {
	for _, p := range v.told {
		if p.Unwatched == "" {
			return ""
		}
		why = max(why, p.Unwatched) // the same one whatever the order
	}
	return why
}

type told struct {
	rank      int
	condition health.Condition
	stale     float64 // how old it is in seconds, if that is too old
}

// jobStalled is the condition by which a process says that a verdict is open. The verdicts are shown themselves.
const jobStalled = "job_stalled"

// together puts those together that several ranks tell of in the same words; the worst come first.
func together(all []told) []Condition {
	slices.SortFunc(all, func(a, b told) int { return cmp.Compare(a.rank, b.rank) })
	list := []Condition{}
	for _, t := range all {
		if t.condition.Code == jobStalled {
			continue
		}
		i := slices.IndexFunc(list, func(c Condition) bool {
			return c.Code == t.condition.Code && c.Subject == t.condition.Subject && c.Text == t.condition.Text &&
				c.Silent() == t.condition.Silent()
		})
		if i < 0 {
			list = append(list, Condition{Condition: t.condition, Ranks: []int{t.rank}, StaleAge: t.stale})
			continue
		}
		list[i].Ranks = append(list[i].Ranks, t.rank)
		list[i].StaleAge = min(list[i].StaleAge, t.stale)
	}
	slices.SortStableFunc(list, func(a, b Condition) int {
		return cmp.Or(last(a.Silent())-last(b.Silent()), cmp.Compare(b.Severity, a.Severity),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
	})
	return list
}

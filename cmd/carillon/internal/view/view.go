// Package view merges what several processes report of their job, and shows it: as JSON, as text, and as a screen of a
// terminal.
//
//	snapshots (a process each) ─┬──► View ──► Report ──► JSON, text, screen
//	tapes of this host ─────────┘
//
// All processes report the same verdicts and ranks; each reports its own conditions and communicators only. Text from
// other processes can't control the terminal: control characters are escaped.
package view

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
)

// View is the known state of a job. One goroutine may use it. The zero View knows nothing.
type View struct {
	job      string
	size     int
	verdicts map[verdictKey]health.Verdict
	ranks    map[rankKey]health.Rank
	told     map[rankKey]*part // each process's last snapshot
	local    []Local           // nil: communicators come from snapshots only
	heard    time.Time         // the time of the last snapshot
}

// Job sets the job's name until the first snapshot.
func (v *View) Job(name string) { v.job = name }

type part struct {
	*health.Snapshot
	at         time.Time
	unanswered bool // a later request was not answered
}

// rankKey is a rank's process. Another process may take over the rank.
type rankKey struct {
	rank int
	pid  int
	host string
}

// verdictKey identifies a verdict of a job: verdicts of different jobs may have the same id.
type verdictKey struct{ job, id string }

// Local is a communicator on the tape of a process of this host.
type Local struct {
	Host string
	PID  int
	Comm health.Comm
}

// Merge adds snapshots that were taken at the same time.
func (v *View) Merge(now time.Time, snapshots ...*health.Snapshot) {
	if len(snapshots) == 0 {
		return
	}
	if v.told == nil {
		v.told = map[rankKey]*part{}
	}
	v.heard, v.verdicts, v.ranks = now, map[verdictKey]health.Verdict{}, map[rankKey]health.Rank{}
	for _, s := range snapshots {
		v.job, v.size = s.Job, s.Size
		v.told[keyOf(s)] = &part{Snapshot: s, at: now}
		for i := range s.Verdicts {
			v.verdicts[verdictKey{s.Verdicts[i].Job, s.Verdicts[i].ID}] = s.Verdicts[i]
		}
		for _, r := range s.Ranks {
			if key := (rankKey{r.Rank, r.PID, r.Host}); v.ranks[key].State == "" || r.Since.After(v.ranks[key].Since) {
				v.ranks[key] = r
			}
		}
	}
	maps.DeleteFunc(v.told, func(key rankKey, _ *part) bool {
		return v.ranks[key].State == "dead" || v.ranks[key].State == "left"
	})
}

func keyOf(s *health.Snapshot) rankKey { return rankKey{s.Rank, s.PID, s.Host} }

const stateAlive = "alive"

// Tapes sets the communicators on the tapes of this host.
func (v *View) Tapes(comms []Local) { v.local = comms }

// Sound tells whether the process of a snapshot is running, as far as is known.
func (v *View) Sound(of *health.Snapshot) bool {
	r, ok := v.ranks[keyOf(of)]
	return !ok || r.Running()
}

// Report returns the view at a moment.
func (v *View) Report(now time.Time) *Report {
	r := &Report{Schema: health.Schema, Time: now.UTC(), Heard: v.heard.UTC(), Job: v.job, Size: v.size}
	r.Verdicts = slices.SortedFunc(maps.Values(v.verdicts), func(a, b health.Verdict) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job), cmp.Compare(a.ID, b.ID))
	})
	r.Ranks = slices.SortedFunc(maps.Values(v.ranks), func(a, b health.Rank) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank), a.Since.Compare(b.Since),
			cmp.Compare(a.PID, b.PID))
	})
	if jobs := v.jobs(); len(jobs) > 1 {
		r.Job, r.Jobs, r.Size = "", jobs, 0
	}
	g := commSet{r.Size, map[lifecycle.CommID]*Comm{}}
	var conditions []rankCondition
	for key, p := range v.told {
		r.Told = append(r.Told, p.Rank)
		old, stale := v.staleness(now, key, p)
		age := 0.0
		if stale {
			age = old.Age
		}
		for _, c := range p.Conditions {
			conditions = append(conditions, rankCondition{p.Rank, c, age})
		}
		taped := v.local != nil && slices.ContainsFunc(v.local, func(l Local) bool {
			return l.Host == key.host && l.PID == key.pid
		})
		if stale && (!taped || len(p.Conditions) > 0) {
			r.Stale = append(r.Stale, old)
		}
		if taped {
			continue // the tape is newer
		}
		for i := range p.Comms {
			g.add(&p.Comms[i], p.Rank, now.Sub(p.at).Seconds(), stale)
		}
	}
	for i := range v.local {
		g.add(&v.local[i].Comm, v.rankOf(&v.local[i]), 0, false)
	}
	slices.Sort(r.Told)
	slices.SortFunc(r.Stale, func(a, b Stale) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Host, b.Host))
	})
	r.Unwatched = v.unwatched()
	r.Conditions = mergeConditions(conditions)
	r.Comms = g.list()
	r.Status = r.status()
	return r
}

// jobs are the names of the jobs that processes reported, in order.
func (v *View) jobs() []string {
	var all []string
	for _, p := range v.told {
		all = append(all, p.Jobs()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rankOf is the job's rank of the process of a tape on this host; -1 if the rank is unknown or the process has several.
func (v *View) rankOf(l *Local) int {
	rank := -1
	for key := range v.ranks {
		if key.host == l.Host && key.pid == l.PID {
			if rank >= 0 && key.rank != rank {
				return -1
			}
			rank = key.rank
		}
	}
	return rank
}

// unwatched says why no process diagnoses the job; empty if any process does, as its verdicts cover all ranks.
func (v *View) unwatched() (why string) {
	for _, p := range v.told {
		if p.Unwatched == "" {
			return ""
		}
		why = max(why, p.Unwatched) // in any order of the map
	}
	return why
}

type rankCondition struct {
	rank      int
	condition health.Condition
	stale     float64 // its age in seconds, if it is stale
}

// jobStalled is the condition of every process while a verdict is open. It is left out, as the verdicts are shown.
const jobStalled = "job_stalled"

// mergeConditions merges equal conditions of several ranks, and sorts them, the worst first.
func mergeConditions(all []rankCondition) []Condition {
	slices.SortFunc(all, func(a, b rankCondition) int { return cmp.Compare(a.rank, b.rank) })
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
		return cmp.Or(order(a.Silent())-order(b.Silent()), cmp.Compare(b.Severity, a.Severity),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
	})
	return list
}

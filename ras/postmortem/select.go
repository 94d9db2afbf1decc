package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// JobsError means that there are tapes of several jobs, or none of the one that was asked for.
type JobsError struct {
	Asked string // what Options.Job said; empty: nothing
	Jobs  []Job  // the last one first
}

// Error lists the jobs.
func (e *JobsError) Error() string {
	var b strings.Builder
	if e.Asked == "" {
		fmt.Fprintf(&b, "there are tapes of %d jobs; choose one with --job:", len(e.Jobs))
	} else {
		fmt.Fprintf(&b, "there is no tape of a job %q; there are:", e.Asked)
	}
	for _, j := range e.Jobs {
		fmt.Fprintf(&b, "\n  --job %-24s %s, last written %s", shellName(j.Name), count(j.Tapes, "tape"),
			j.Last.Format("2006-01-02 15:04:05Z"))
		if j.Alive > 0 {
			fmt.Fprintf(&b, ", %d alive", j.Alive)
		}
		if j.Died > 0 {
			fmt.Fprintf(&b, ", %d died", j.Died)
		}
	}
	return b.String()
}

// shellName quotes a job's name where a shell needs it.
func shellName(name string) string {
	name = clean(name)
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return name
}

// wallTime is a time by the tape's own time of day, before there is one clock.
func (p *process) wallTime(mono int64) time.Time {
	if mono == 0 {
		return p.header.Created
	}
	return p.header.Wall(mono)
}

// jobs groups the processes by jobs, the job that was written to last first.
func jobs(procs []*process) (list []Job, byName map[string][]*process) {
	byName = make(map[string][]*process)
	for _, p := range procs {
		byName[p.header.Job] = append(byName[p.header.Job], p)
	}
	for name, procs := range byName {
		j := Job{Name: name, Tapes: len(procs), Runs: len(runs(procs))}
		for _, p := range procs {
			switch p.state() {
			case StateAlive:
				j.Alive++
			case StateDied:
				j.Died++
			case StateClosed, StateUnknown:
			}
			if last := p.wallTime(p.last).UTC(); last.After(j.Last) {
				j.Last = last
			}
		}
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b Job) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Name, b.Name)) })
	return list, byName
}

// runs tells apart what was started under one name one after another: processes of one run share communicators, or were
// there at the same time. The first run comes first.
func runs(procs []*process) [][]*process {
	type group struct {
		procs       []*process
		begin, last time.Time
	}
	// What shares a communicator is one group.
	owner := make(map[lifecycle.CommID]int)
	parent := make([]int, len(procs))
	root := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	for i, p := range procs {
		parent[i] = i
		for _, m := range p.members {
			if first, ok := owner[m.ID]; ok {
				parent[root(i)] = root(first)
			} else {
				owner[m.ID] = i
			}
		}
	}
	groups := make(map[int]*group)
	var order []*group
	for i, p := range procs {
		begin, last := p.header.Created, p.wallTime(p.last)
		g := groups[root(i)]
		if g == nil {
			g = &group{begin: begin, last: last}
			groups[root(i)] = g
			order = append(order, g)
		}
		g.procs = append(g.procs, p)
		if begin.Before(g.begin) {
			g.begin = begin
		}
		if last.After(g.last) {
			g.last = last
		}
	}
	slices.SortStableFunc(order, func(a, b *group) int { return a.begin.Compare(b.begin) })
	var all [][]*process
	var until time.Time
	for _, g := range order {
		if len(all) > 0 && !g.begin.After(until) {
			all[len(all)-1] = append(all[len(all)-1], g.procs...)
		} else {
			all = append(all, g.procs)
		}
		if g.last.After(until) {
			until = g.last
		}
	}
	return all
}

// once drops tapes that are there twice, as after two copies of one folder.
func once(procs []*process) (kept []*process, problems []Problem) {
	type key struct {
		boot    [16]byte
		host    string
		pid     int
		created time.Time
	}
	seen := make(map[key]*process)
	for _, p := range procs {
		k := key{p.header.KernelBoot, p.header.Host, p.header.PID, p.header.Created}
		if first := seen[k]; first != nil && samePlace(first, p) {
			problems = append(problems, Problem{Path: p.path, Text: "is a copy of " + first.path + " and is left out"})
			continue
		}
		seen[k] = p
		kept = append(kept, p)
	}
	return kept, problems
}

// samePlace tells whether two tapes of one process are copies; a process may have several of its own.
func samePlace(a, b *process) bool {
	if len(a.members) != len(b.members) || a.last != b.last || a.first != b.first {
		return false
	}
	for i, m := range a.members {
		if n := b.members[i]; m.ID != n.ID || m.Rank != n.Rank || m.Generation != n.Generation {
			return false
		}
	}
	return true
}

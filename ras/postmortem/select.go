package postmortem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// jobsError says that there are no tapes of the job that was asked for, and lists those that there are.
func jobsError(asked string, jobs []Job) error {
	var b strings.Builder
	fmt.Fprintf(&b, "there is no tape of a job %q; there are:", asked)
	for _, j := range jobs {
		fmt.Fprintf(&b, "\n  --job %-24s %s, last written %s", shellName(j.Name), count(j.Tapes, "tape"),
			j.Last.Format("2006-01-02 15:04:05Z"))
		if j.Alive > 0 {
			fmt.Fprintf(&b, ", %d alive", j.Alive)
		}
		if j.Died > 0 {
			fmt.Fprintf(&b, ", %d died", j.Died)
		}
	}
	return errors.New(b.String())
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
			case StateExited, StateClosed, StateUnknown:
			}
			j.Last = later(j.Last, p.wallTime(p.last).UTC())
		}
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b Job) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Name, b.Name)) })
	return list, byName
}

// runs tells apart what was started under one name one after another: processes of one run share communicators, or were
// there at the same time. The first run comes first.
func runs(procs []*process) (all [][]*process) {
	ends := make(map[lifecycle.CommID]time.Time) // when the last process of a communicator wrote last
	end := func(p *process) time.Time { return later(p.header.Created, p.wallTime(p.last)) }
	for _, p := range procs {
		for _, m := range p.members {
			ends[m.ID] = later(ends[m.ID], end(p))
		}
	}
	procs = slices.Clone(procs)
	slices.SortStableFunc(procs, func(a, b *process) int { return a.header.Created.Compare(b.header.Created) })
	var until time.Time
	for i, p := range procs {
		if i == 0 || p.header.Created.After(until) {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], p)
		until = later(until, end(p))
		for _, m := range p.members {
			until = later(until, ends[m.ID])
		}
	}
	return all
}

// once drops tapes that are there twice, as after two copies of one folder.
func (r *Report) once(procs []*process) (kept []*process) {
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
			r.problem(p.path, "is a copy of %s and is left out", first.path)
			continue
		}
		seen[k] = p
		kept = append(kept, p)
	}
	return kept
}

// samePlace tells whether two tapes of one process are copies; a process may have several of its own.
func samePlace(a, b *process) bool {
	return a.last == b.last && a.first == b.first && slices.EqualFunc(a.members, b.members, func(m, n *member) bool {
		return m.ID == n.ID && m.Rank == n.Rank && m.Generation == n.Generation
	})
}

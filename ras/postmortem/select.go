package postmortem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
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
	name = words.Line(name)
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

// runs groups the processes of one job name into runs, in the order of their starts. Processes of one run know the same
// lifecycle.Run, or share a communicator. Processes that know no run, as their ranks never met, join a run of which a
// process still ran when they began: a process that hangs writes nothing.
func runs(procs []*process) (list [][]*process) {
	type run struct {
		id         lifecycle.Run
		procs      []*process
		begin, end time.Time
	}
	byBond := make(map[any]*run)
	add := func(to, from *run) {
		to.id = cmp.Or(to.id, from.id)
		to.procs, to.end = append(to.procs, from.procs...), later(to.end, from.end)
		to.begin = earlier(to.begin, from.begin)
		for _, p := range from.procs {
			for _, b := range p.bonds() {
				byBond[b] = to
			}
		}
		from.procs = nil
	}
	all := make([]*run, 0, len(procs))
	for _, p := range procs {
		r := &run{
			id: p.header.Run, procs: []*process{p}, begin: p.header.Created, end: p.endTime(),
		}
		all = append(all, r)
		for _, b := range p.bonds() {
			if other := byBond[b]; other != nil && other != r {
				add(other, r)
				r = other
			}
			byBond[b] = r
		}
	}
	slices.SortStableFunc(all, func(a, b *run) int { return a.begin.Compare(b.begin) })
	for i, r := range all {
		for _, o := range all[:i] { // unless either was merged into another run
			if len(o.procs) > 0 && len(r.procs) > 0 && (o.id == 0 || r.id == 0) && !r.begin.After(o.end) {
				add(o, r)
			}
		}
	}
	for _, r := range all {
		if len(r.procs) > 0 {
			list = append(list, r.procs)
		}
	}
	return list
}

// bonds identify the run of a process: its lifecycle.Run and the communicators that it initialized. A communicator
// whose init was not completed doesn't count: a world whose ranks never met has the same id in other runs, unless it is
// one of NCCL's, which are all different.
func (p *process) bonds() (all []any) {
	if p.header.Run != 0 {
		all = append(all, p.header.Run)
	}
	for _, m := range p.members {
		made := func(a *model.Act) bool { return a.Kind == tape.ActInit && a.Code == lifecycle.CodeOK }
		if m.NCCL() || m.Begun > 0 || m.count > 0 || m.State == lifecycle.StateReady ||
			slices.ContainsFunc(m.over, made) {
			all = append(all, m.ID)
		}
	}
	return all
}

// dropCopies drops copies of tapes, as of a folder that was copied twice.
func (r *Report) dropCopies(procs []*process) (kept []*process) {
	type key struct { // a process may have several tapes of its own
		boot        [16]byte
		host        string
		pid         int
		created     time.Time
		first, last int64
	}
	seen := make(map[key]*process)
	for _, p := range procs {
		k := key{p.header.KernelBoot, p.header.Host, p.header.PID, p.header.Created, p.first, p.last}
		if first := seen[k]; first != nil {
			r.problem(p.path, "is a copy of %s and is left out", first.path)
			continue
		}
		seen[k] = p
		kept = append(kept, p)
	}
	return kept
}

package agent

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Launched is what the launcher of this host's processes has recorded in this run of the job.
type Launched struct {
	Ends  []mesh.Status // processes that have ended, in that order
	Told  time.Time     // when the launcher began to end the job; zero: it didn't
	First int           // how many of Ends had ended before Told
}

// FromLedger is a Config.Launched that reads the ledger in dir, the folder of the tapes. self is this process.
func FromLedger(dir string, self mesh.Member) func() Launched {
	ledger, began := process.LedgerTail{Path: filepath.Join(dir, process.Ledger)}, process.Monotonic()
	return func() (l Launched) {
		now, mono := time.Now(), process.Monotonic()
		for _, e := range process.OfRun(ledger.Runs(), began) {
			at := now.Add(time.Duration(e.Mono - mono))
			switch {
			case e.PID != 0 && e.PIDSpace == self.PIDSpace:
				l.Ends = append(l.Ends, mesh.Status{
					Member: self.Beside(e.PID, e.Rank), State: mesh.Ended(e.Exit), Since: at,
					Cause: mesh.CauseExit, Exit: e.Exit,
				})
			case e.PID == 0 && e.Ended != "" && l.Told.IsZero():
				l.Told, l.First = at, len(l.Ends)
			}
		}
		return l
	}
}

// launched gives the machine what the launcher has recorded. A rank's process that ended before it met the others
// becomes a member, and its note is returned.
func (a *Agent) launched(ctx context.Context, now time.Time) []verdict.Note {
	if a.cfg.Launched == nil {
		return nil
	}
	l := a.cfg.Launched()
	var names []string
	for _, s := range l.Ends {
		if !hasRank(a.members, s.Member.Rank) {
			names = append(names, s.Member.Name)
		}
	}
	if len(l.Ends) > len(a.noted) {
		a.noted = l.Ends
		a.effects(ctx, now, a.machine.Step(now, a.membership()))
	}
	if !l.Told.IsZero() {
		in := Ending{Since: l.Told}
		for _, s := range l.Ends[:l.First] {
			in.After = append(in.After, s.Member.Name)
		}
		a.effects(ctx, now, a.machine.Step(now, in))
	}
	return a.tapesOf(names)
}

// addEnds completes the members that announced that they leave by how their processes ended. It returns the processes
// with ranks that are not among the members.
func (a *Agent) addEnds(members []mesh.Status) (unknown []mesh.Status) {
	for _, end := range a.noted {
		if !hasRank(members, end.Member.Rank) {
			unknown = append(unknown, end)
		}
		for i := range members {
			if m := &members[i]; m.Member.Name == end.Member.Name && m.State == mesh.Left && m.Cause == mesh.CauseTold {
				m.Cause, m.Exit = end.Cause, end.Exit
			}
		}
	}
	return unknown
}

// tapesOf returns the notes of those named processes that only the launcher knew. Without a tape, a note has only the
// process's name.
func (a *Agent) tapesOf(names []string) (notes []verdict.Note) {
	var ended []mesh.Status
	a.locked(func() { ended = a.ended })
	for _, s := range ended {
		if slices.Contains(names, s.Member.Name) {
			n, _ := a.cfg.Local(s.Member)
			n.Member = s.Member.Name
			notes = append(notes, n)
		}
	}
	return notes
}

// hasRank tells whether a process with this rank of the job is in a list.
func hasRank(list []mesh.Status, rank int) bool {
	return slices.ContainsFunc(list, func(s mesh.Status) bool { return s.Member.Rank == rank })
}

// isMember tells whether a process is in a list.
func isMember(list []mesh.Status, name string) bool {
	return slices.ContainsFunc(list, func(s mesh.Status) bool { return s.Member.Name == name })
}

package agent

import (
	"path/filepath"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// NoteOf is what a process's tape tells of it at the time now of the tape's clock. The whole tape is read: a follower
// gets a sample of what is ordinary, and a rank's habits are known from all. The note of a tape that can't be read to
// its end, as somebody truncated it, is Stale.
func NoteOf(m mesh.Member, r *tape.Reader, limits model.Limits, now int64) verdict.Note {
	p := model.New(limits)
	stale := false
	for ev, err := range r.Events() {
		if stale = err != nil; stale {
			break
		}
		p.Apply(&ev)
	}
	if resumed := r.Header().Resumed; resumed > 0 {
		p.Resumed(resumed)
	}
	slots, _ := r.AppendSlots(nil)     // what is corrupt is left out
	tallies, _ := r.AppendTallies(nil) // likewise
	p.Look(slots, tallies)
	p.Forget()
	n := NoteBy(m, p, now)
	n.Stale = stale
	return n
}

// NoteBy is what the model of a process tells of it at the time now of the tape's clock.
func NoteBy(m mesh.Member, p *model.Process, now int64) verdict.Note {
	n := verdict.Note{Member: m.Name, Host: m.Host, PID: m.PID, Rank: m.Rank, JobSize: m.JobSize}
	n.Fold(p, now)
	return n
}

// FromTapes reads what is known of another process of this host from its tape, which lies in dir beside this process's
// own. It is for Config.Local. now is the tapes' clock.
func FromTapes(dir string, limits model.Limits, now func() int64) func(mesh.Member) (verdict.Note, bool) {
	return func(m mesh.Member) (verdict.Note, bool) {
		if filepath.Base(m.Name) != m.Name { // a name of another member is no path
			return verdict.Note{}, false
		}
		r, err := tape.Open(filepath.Join(dir, m.Name+".tape"))
		if err != nil {
			return verdict.Note{}, false
		}
		defer func() { _ = r.Close() }() // it was only read
		return NoteOf(m, r, limits, now()), true
	}
}

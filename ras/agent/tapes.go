package agent

import (
	"path/filepath"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// NoteOf is a process's note by its tape, at the time now of the tape's clock. It reads the whole tape, as a follower
// gets only a sample of ordinary operations, and a rank's habits follow from all operations. The note is Stale if the
// tape can't be read to its end, as after a truncation. A tape doesn't tell when devices did something: devices is what
// a follower of the tape has seen, as model.Process.Devices; nil if there is no follower.
func NoteOf(
	m mesh.Member, r *tape.Reader, limits model.Limits, now int64, devices map[uint32]model.Device,
) verdict.Note {
	p := model.New(limits)
	before, _ := r.AppendSlots(nil) // corrupt slots are left out
	stale := false
	for ev, err := range r.Events() {
		if stale = err != nil; stale {
			break
		}
		p.Apply(&ev)
	}
	h := r.Header()
	p.Terminated(h.Terminated)
	if h.Resumed > 0 {
		p.Resumed(h.Paused, h.Resumed)
	}
	slots, _ := r.AppendSlots(nil)
	tallies, _ := r.AppendTallies(nil)
	p.Look(slots, tallies)
	p.Forget(before)
	p.DevicesAs(devices)
	n := NoteBy(m, p, now)
	n.Stale = stale
	return n
}

// NoteBy is a process's note by its model, at the time now of the tape's clock.
func NoteBy(m mesh.Member, p *model.Process, now int64) verdict.Note {
	var n verdict.Note
	identify(&n, &m)
	n.Fold(p, now)
	return n
}

// identify sets whose note it is.
func identify(n *verdict.Note, m *mesh.Member) {
	n.Member, n.Host, n.Machine, n.PID, n.Rank, n.JobSize = m.Name, m.Host, m.Machine, m.PID, m.Rank, m.JobSize
}

// FromTapes is a Config.Local that reads the tapes of this host's processes, in dir. now is the tapes' clock.
func FromTapes(dir string, limits model.Limits, now func() int64) func(mesh.Member) (verdict.Note, bool) {
	return func(m mesh.Member) (verdict.Note, bool) {
		if filepath.Base(m.Name) != m.Name { // a member's name must not be a path
			return verdict.Note{}, false
		}
		r, err := tape.Open(filepath.Join(dir, m.Name+".tape"))
		if err != nil {
			return verdict.Note{}, false
		}
		defer func() { _ = r.Close() }() // it was only read
		return NoteOf(m, r, limits, now(), nil), true
	}
}

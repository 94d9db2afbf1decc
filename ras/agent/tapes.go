package agent

import (
	"path/filepath"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// FromTapes reads what is known of another process of this host from its tape, which lies in dir beside this process's
// own. It is for Config.Local. now is the tapes' clock.
func FromTapes(dir string, now func() int64) func(mesh.Member) (verdict.Note, bool) {
	return func(m mesh.Member) (verdict.Note, bool) {
		if filepath.Base(m.Name) != m.Name { // a name of another member is no path
			return verdict.Note{}, false
		}
		r, err := tape.Open(filepath.Join(dir, m.Name+".tape"))
		if err != nil {
			return verdict.Note{}, false
		}
		defer func() { _ = r.Close() }() // it was only read
		book := newNotebook()
		for ev, err := range r.Events() {
			if err != nil {
				break // what could be read tells most
			}
			book.observe(&ev)
		}
		return verdict.Note{
			Member: m.Name, Host: m.Host, PID: m.PID, Rank: m.Rank, JobSize: m.JobSize, Slots: book.slots(r.Slots(), now()),
		}, true
	}
}

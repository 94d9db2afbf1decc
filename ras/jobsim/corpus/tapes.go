package corpus

import (
	"path/filepath"

	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// newTape is the tape of the process.
func (q *peer) newTape() *tapetest.Forge {
	now, m := q.live.job.Now(), &q.member
	f := &tapetest.Forge{
		PID: m.PID, Rank: m.Rank, JobSize: m.JobSize, SlowAfter: model.DefaultSlow, StallAfter: Threshold, Host: m.Host,
		BootID: m.Host, Job: "corpus", Program: "train", Version: "1",
		CreatedMono: now, CreatedWall: base.UnixNano() + now, Roots: map[uint32]uint32{}, Seen: now,
	}
	copy(f.KernelBoot[:], m.Host)
	return f
}

// record writes an event to the tape.
func (q *peer) record(ev *tape.Event) {
	f := q.tape
	if _, known := f.Roots[ev.Generation]; !known {
		f.Roots[ev.Generation] = ev.Root
		f.Comm(q.live.job.Now(), ev.Generation, ev.Comm)
	}
	if ev.IsLife {
		f.Life(ev.Generation, ev.Life)
	} else {
		f.Op(ev.Generation, ev.Op)
	}
}

// beat writes the heartbeat of the tape.
func (q *peer) beat() {
	f, now := q.tape, q.live.job.Now()
	if now-f.Seen > 4*int64(lookTime) {
		f.Paused, f.Resumed = f.Seen, now
	}
	f.Seen = now
}

// over keeps the last in-flight table of a process that has ended, and writes its end.
func (q *peer) over() {
	l, p := q.live, q.process
	q.last = p.Slots([]tape.Slot{})
	q.tape.Closed = p.State == jobsim.Departed
	l.ended = append(l.ended, process.Entry{
		Time: l.now(), Mono: l.job.Now(), Boot: q.boot(), Rank: q.member.Rank, PID: q.member.PID, Exit: p.How,
	})
}

func (q *peer) boot() string { return process.BootID(q.tape.KernelBoot).String() }

// write writes the tapes as they are now, and the launcher's ledger, into a folder.
func (l *Live) write(dir string) error {
	for _, q := range l.peers {
		if q.tape.Slots = q.last; q.last == nil {
			q.tape.Slots = q.process.Slots(nil)
		}
		if err := q.tape.WriteFile(filepath.Join(dir, q.member.Name+".tape")); err != nil {
			return err
		}
	}
	for _, e := range l.ended {
		if err := process.AppendEntry(dir, e); err != nil {
			return err
		}
	}
	return nil
}

// Read writes the tapes into a folder, and reads them with the post-mortem.
func (l *Live) Read(dir string) (*postmortem.Report, error) {
	if err := l.write(dir); err != nil {
		return nil, err
	}
	return postmortem.Read([]string{dir}, postmortem.Options{Last: 1, Run: -1})
}

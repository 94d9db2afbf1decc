package corpus

import (
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// Tapes are what the processes of a simulated job leave behind.
type Tapes struct {
	job   *jobsim.Job
	tapes []*tapetest.Forge // by process
	names []string
	known []map[uint32]bool // the communicators that a tape describes
	slots [][]tape.Slot     // the in-flight tables of processes that have ended
	ended []process.Entry
}

// NewTapes begins to record. It must be called before the job runs.
func NewTapes(j *jobsim.Job, slow, stalled time.Duration) *Tapes {
	t := &Tapes{job: j}
	for i, p := range j.Processes {
		pid := firstPID + i
		f := &tapetest.Forge{
			PID: pid, Rank: p.Ranks[0].Job, JobSize: len(j.Ranks), SlowAfter: slow, StallAfter: stalled, Host: p.Host,
			BootID: p.Host, Job: "corpus", Program: "train", Version: "1",
			CreatedMono: j.Now(), CreatedWall: base.UnixNano() + j.Now(), Roots: map[uint32]uint32{}, Seen: j.Now(),
		}
		copy(f.KernelBoot[:], p.Host)
		t.tapes, t.names = append(t.tapes, f), append(t.names, fmt.Sprintf("%s-%d", p.Host, pid))
		t.known, t.slots = append(t.known, map[uint32]bool{}), append(t.slots, nil)
	}
	return t
}

// observe takes an event of a process.
func (t *Tapes) observe(p *jobsim.Process, ev *tape.Event) {
	f := t.tapes[p.Index]
	if !t.known[p.Index][ev.Generation] {
		t.known[p.Index][ev.Generation] = true
		f.Roots[ev.Generation] = ev.Root
		f.Comm(t.job.Now(), ev.Generation, ev.Comm)
	}
	if ev.IsLife {
		f.Life(ev.Generation, ev.Life)
	} else {
		f.Op(ev.Generation, ev.Op)
	}
}

// saw notes that a process has looked for what stalls.
func (t *Tapes) saw(p *jobsim.Process) {
	f, now := t.tapes[p.Index], t.job.Now()
	if f.Seen > 0 && now-f.Seen > 4*int64(lookTime) {
		f.Paused, f.Resumed = f.Seen, now
	}
	f.Seen = now
}

// over takes the last moment of a process that has ended.
func (t *Tapes) over(p *jobsim.Process) {
	f, now := t.tapes[p.Index], t.job.Now()
	t.slots[p.Index] = p.Slots([]tape.Slot{})
	f.Closed = p.State == jobsim.Departed
	t.ended = append(t.ended, process.Entry{
		Time: base.Add(time.Duration(now)), Mono: now, Boot: t.boot(p), Rank: p.Ranks[0].Job, PID: f.PID, Exit: exitOf(p.How),
	})
}

// told notes that the launcher was told to end the job.
func (t *Tapes) told() {
	hosts := map[string]bool{}
	for _, p := range t.job.Processes {
		t.tapes[p.Index].Terminated = t.job.Now()
		if boot := t.boot(p); !hosts[boot] {
			hosts[boot] = true
			t.ended = append(t.ended, process.Entry{
				Time: base.Add(time.Duration(t.job.Now())), Mono: t.job.Now(), Boot: boot, Ended: "SIGTERM",
			})
		}
	}
}

func (t *Tapes) boot(p *jobsim.Process) string {
	return process.BootID(t.tapes[p.Index].KernelBoot).String()
}

// Write writes the tapes as they are now, and the launcher's ledger, into a folder.
func (t *Tapes) Write(dir string) error {
	for i, p := range t.job.Processes {
		f := t.tapes[i]
		if f.Slots = t.slots[i]; f.Slots == nil {
			f.Slots = p.Slots(nil)
		}
		if err := f.WriteFile(filepath.Join(dir, t.names[i]+".tape")); err != nil {
			return err
		}
	}
	for _, e := range t.ended {
		if err := process.AppendEntry(dir, e); err != nil {
			return err
		}
	}
	return nil
}

// Findings reads in the tapes, which it writes into a folder, what is to be said of this moment.
func (t *Tapes) Findings(dir string) ([]postmortem.Finding, error) {
	for _, p := range t.job.Processes {
		if p.State == jobsim.Running {
			t.saw(p)
		}
	}
	if err := t.Write(dir); err != nil {
		return nil, err
	}
	r, err := postmortem.Read([]string{dir}, postmortem.Options{At: base.Add(time.Duration(t.job.Now()))})
	if err != nil {
		return nil, err
	}
	return r.Findings, nil
}

// exitOf is how a process ended, from the simulator's words.
func exitOf(how string) process.Exit {
	e := process.Exit{Known: true}
	if _, err := fmt.Sscanf(how, "it exited with %d", &e.Code); err != nil {
		if e.Signal = unix.SignalNum(how); e.Signal == 0 {
			e.Signal = unix.SIGKILL
		}
	}
	return e
}

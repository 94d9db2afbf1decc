package process

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ledger is the name of a file beside the tapes of a job, in which the launcher, or an agent, notes how processes
// ended, why it ended them, and how long they hung.
const Ledger = "launcher.log"

const (
	// EndedByFailure is Entry.Ended if the launcher ends the job because a rank failed.
	EndedByFailure = "failed"
	// EndedByOutput is Entry.Ended if the launcher ends the job because its output was closed.
	EndedByOutput = "its output could not be shown"
)

// Entry is a line of a Ledger: how a process ended, that it was found dead, or why the launcher ends the job. An
// agent's entry says that the job hung, which of its processes were stopped, until when it was followed, or what the
// agent saw of a process's devices. The launcher and the agent may both record one process's end.
type Entry struct {
	Time time.Time `json:"time"`
	// Mono is Time on CLOCK_MONOTONIC in nanoseconds, of the boot that Boot names.
	Mono int64  `json:"mono"`
	Boot string `json:"boot"`
	// PIDSpace is the pid namespace of the pids in the entry: its writer's. 0: each process's own.
	PIDSpace uint64 `json:"pid_space,omitempty"`

	// Rank, PID and Exit are the process's. PID is 0 in an entry about the job.
	Rank int  `json:"rank"`
	PID  int  `json:"pid,omitempty"`
	Exit Exit `json:"exit,omitzero"`
	// Found tells that the process was found dead: it had ended some time before.
	Found bool `json:"found,omitempty"`
	// Program tells that the process is the program that carillon attach ran: a rank, or the launcher of ranks.
	Program bool `json:"program,omitempty"`
	// Began is when the Program began, on Mono's clock, or in an entry of carillon run, when it began to start the
	// ranks. A process with an earlier tape belongs to another run of the job.
	Began int64 `json:"began,omitempty"`
	// Followed tells that an agent followed the process's tape to the end; in an entry about the job, that an agent
	// followed all tapes of this host until then.
	Followed bool `json:"followed,omitempty"`

	// Ended is why the launcher ends the job: the name of a signal that the launcher got, EndedByFailure, or a text
	// that follows "because". It is empty in an entry about a process.
	Ended string `json:"ended,omitempty"`
	// Forwarded is the name of a signal that the launcher got and passed on to all ranks, which may end them or not.
	Forwarded string `json:"forwarded,omitempty"`

	// Running is an agent's entry about the job: a verdict was open, and these processes of the host were running.
	Running []int `json:"running,omitempty"`
	// Stopped are those of Running that were stopped, as by SIGSTOP.
	Stopped []int `json:"stopped,omitempty"`

	// Stays is an agent's entry about a running process, while a verdict based on its devices was open: a model.Stay by
	// the generation of each communicator, in JSON. It is {} when no such verdict is open any more.
	Stays json.RawMessage `json:"stays,omitempty"`
}

// Now returns the entry with the current time.
func (e Entry) Now() Entry {
	me := Self()
	e.Time, e.Mono, e.Boot, e.PIDSpace = time.Now(), Monotonic(), me.BootID.String(), me.PIDSpace
	return e
}

// AppendEntry appends an entry to the Ledger of a folder that this user owns: another owner could not read the file. An
// entry without a time gets the current one.
func AppendEntry(dir string, e Entry) error {
	if e.Time.IsZero() {
		e = e.Now()
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if len(line) >= maxLine {
		return fmt.Errorf("an entry of %d bytes can't be read again", len(line))
	}
	folder, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer folder.Close() //nolint:errcheck // only looked at
	info, err := folder.Stat(".")
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d: %w", dir, owner, fs.ErrPermission)
	}
	f, err := folder.OpenFile(Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	if info, err = f.Stat(); err == nil && info.Size() > maxLedger/4*3 && len(e.Stays) > 0 {
		return errors.Join(fmt.Errorf("%s is full", f.Name()), f.Close())
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// OfRun returns the entries of carillon run about the run of a job to which a process of this machine belongs that ran
// at a time of Monotonic, in their order. They are about the run that began last before then, and about runs of other
// launchers with the same folder that were not over when it began, or began later.
func OfRun(entries []Entry, at int64) []Entry {
	boot := Self().BootID.String()
	began := RunBegan(entries, boot, at)
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
		return !e.ofRun(boot) || began == 0 || e.Mono < began
	})
}

// RunBegan is when carillon run began the run that it had begun last at a time of Monotonic in that boot; 0 if it had
// begun none.
func RunBegan(entries []Entry, boot string, at int64) (began int64) {
	for i := range entries {
		if e := &entries[i]; e.ofRun(boot) && e.Began <= at {
			began = max(began, e.Began)
		}
	}
	return began
}

// ofRun tells whether the entry is one of carillon run in that boot.
func (e *Entry) ofRun(boot string) bool { return e.Began > 0 && !e.Program && e.Boot == boot }

// Monotonic is the kernel's CLOCK_MONOTONIC in nanoseconds, even in a bubble of synctest.
func Monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(clockMonotonic, &ts) // fails only for an unknown clock
	return ts.Nano()
}

// Bounds of a Ledger, in bytes. The last quarter is reserved for rare entries: how processes ended.
const (
	maxLedger = 1 << 24
	maxLine   = 1 << 17 // Stays of hundreds of communicators
)

// ReadLedger reads the Ledger at path up to the first invalid line, or up to maxLedger. A missing file has no entries.
func ReadLedger(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	var entries []Entry
	lines := bufio.NewScanner(io.LimitReader(f, maxLedger))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return entries, fmt.Errorf("%s: line %d: %w", path, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}

// LedgerTail reads the Ledger at Path, which grows: each time, only what is new.
type LedgerTail struct {
	Path string
	at   int64 // behind the last whole line
	runs []Entry
}

// Runs returns all entries of carillon run, without unreadable lines. The caller doesn't change them.
func (t *LedgerTail) Runs() []Entry {
	f, err := os.Open(t.Path)
	if err != nil {
		return t.runs
	}
	defer f.Close() //nolint:errcheck // only read from
	b, _ := io.ReadAll(io.NewSectionReader(f, t.at, maxLedger-t.at))
	for {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			return t.runs
		}
		b, t.at = rest, t.at+int64(len(line)+1)
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.ofRun(e.Boot) {
			t.runs = append(t.runs, e)
		}
	}
}

package tape

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// FormatError is the error of a file that is no valid tape.
type FormatError struct {
	Path    string
	Problem string
}

func (e *FormatError) Error() string { return fmt.Sprintf("tape: %s %s", e.Path, e.Problem) }

// Header is what a tape says about the process that writes it. Its times are on the tape's clock, CLOCK_MONOTONIC in
// nanoseconds, except for Created.
type Header struct {
	// PID is the process's number in its own pid namespace, whose inode is PIDSpace; 0 if unknown.
	PID              int
	PIDSpace         uint64
	BootID           string
	Host, Job        string
	Program, Version string
	Created          time.Time

	// KernelBoot is the kernel's id of this boot of the machine, zero if unknown. Tapes with the same one share a
	// clock, whatever BootID their user set.
	KernelBoot process.BootID

	// Rank is the process's rank in the job, the first of several; -1 if unknown. JobSize is how many ranks the job
	// has; 0 if unknown.
	Rank, JobSize int

	// SlowAfter and StallAfter are the durations from which the process calls an operation slow and stalled; 0 if
	// unknown.
	SlowAfter, StallAfter time.Duration

	Slots, Tallies int // how many the tape has room for

	Closed   bool   // the writer closed the tape cleanly
	Overflow uint64 // communicators that found the in-flight table full

	// Exported is the time until which the process has exported all its spans; spans that were open then were exported
	// as unfinished. A reader of the tape need not export them again. 0: the process doesn't say. AllExported: the
	// process is dead, and a reader has sent all spans.
	Exported int64
	// Delivered is the time until which the spans of everything that had ended have been exported. 0: the process
	// exports none, or an export failed.
	Delivered int64
	// Terminated is when the process was told from outside to end, by SIGTERM; 0: never.
	Terminated int64
	// Watched tells that the process has its own telemetry, which reads the tape.
	Watched bool
	// Seen is when the process's own telemetry last read the in-flight table: the process ran at least until then, so
	// that a stopped process can be noticed. 0: never.
	Seen int64
	// Paused and Resumed are when the process last stopped running and ran again, as its telemetry noticed afterwards:
	// after a SIGSTOP, on a frozen machine, or on one with too few processors. 0: never. Starved is how long its
	// threads, all together, waited for a processor in between: a stopped process waits for none.
	Paused, Resumed int64
	Starved         time.Duration
	// Unexpected is zero except in processes with NCCL's profiler plug-in.
	Unexpected Unexpected
	// AgentPID is the process's pid as seen by the last agent that followed it; 0 if none did. It differs from PID if
	// the process is in a container and the agent is not.
	AgentPID int
	// Exporter identifies where the process exports its spans, and under which resource: processes with the same number
	// can send spans that it left unsent. 0: it exports none.
	Exporter uint64
	// Run is the run of the job that the process is part of; 0 until it is known.
	Run lifecycle.Run

	mono, wall  int64 // one moment on both clocks
	createdMono int64 // Created on the tape's clock
}

// KnownPID is the pid that is shown to people, while the process runs and later: AgentPID, or PID if no agent followed
// it.
func (h Header) KnownPID() int { return cmp.Or(h.AgentPID, h.PID) }

// WallShift is how far the time of day moved ahead of the tape's clock (negative: behind it) between the tape's
// creation and its last act. A clock that is set shows as a jump.
func (h Header) WallShift() time.Duration {
	return time.Duration((h.wall - h.Created.UnixNano()) - (h.mono - h.createdMono))
}

// Wall turns a time of the tape (CLOCK_MONOTONIC, ns) into the time of day.
func (h Header) Wall(mono int64) time.Time { return time.Unix(0, h.wall+(mono-h.mono)) }

// Reader reads the tape of a process that is alive or dead, as it is now. It is safe for concurrent use. It reads with
// pread(2), never through a mapping: a file that is cut short meanwhile gives an error and no SIGBUS, and the race
// detector sees no shared memory.
type Reader struct {
	f       *os.File
	path    string
	partial bool  // missing bytes at the end read as zeros
	cut     int64 // the size of a tape that was cut short; 0: it is whole
	geo     geometry
	static  Header
	writer  process.ID // as its own pid namespace numbers it
	process process.ID // as this one does, if it can
	sites   namer

	mu           sync.Mutex // guards the fields below
	missed       Missed     // by the last Events
	table, again []slot     // scratch for reading the in-flight table
	marked       []marked   // scratch, as the next two; nil if the tape has no marks
	reached      []reached
	devices      []DevicePage
	counts       []tally // scratch for reading tallies
	texts        texts   // of both
}

// openFile opens and checks a tape; flag is os.O_RDONLY or os.O_RDWR.
func openFile(path string, flag int, partial bool) (*Reader, error) {
	// Neither block nor follow links, in case somebody put a pipe or a link there.
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &FormatError{path, "is a symbolic link, which a tape never is"}
	}
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	t := &Reader{f: f, path: path, partial: partial, texts: texts{}}
	t.sites = namer{t: t, known: make(map[lifecycle.Site]string)}
	if err := t.readStatic(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return t, nil
}

// Path is the file's name, as it was given.
func (t *Reader) Path() string { return t.path }

// Process is the process that writes, or wrote, the tape, as this pid namespace numbers it where it can.
func (t *Reader) Process() process.ID { return t.process }

// Liveness tells whether the process that writes, or wrote, the tape is alive.
func (t *Reader) Liveness() process.Liveness { return t.process.Liveness() }

func (t *Reader) malformed(format string, args ...any) error {
	return &FormatError{t.path, fmt.Sprintf(format, args...)}
}

// readAt fills b from offset off. If the tape is cut short while it is read, every later read fails: the writer writes
// elsewhere, and the rest of the file is stale.
func (t *Reader) readAt(b []byte, off int64) error {
	var n int
	var err error
	if !t.partial && t.geo.op > 0 && t.cut == 0 && len(b) > 0 { // is its last byte there?
		_, err = t.f.ReadAt(b[:1], t.geo.size()-1)
	}
	if err == nil {
		n, err = t.f.ReadAt(b, off)
	}
	switch {
	case errors.Is(err, io.EOF) && t.cut > 0 && off+int64(len(b)) <= t.geo.size():
		clear(b[n:]) // as if it had never been written
	case errors.Is(err, io.EOF):
		return t.cutShort()
	case err != nil:
		return fmt.Errorf("tape: %w", err)
	}
	return nil
}

// cutShort is the error of a tape that was cut short.
func (t *Reader) cutShort() error {
	st, err := t.f.Stat()
	if err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	return t.malformed("was cut short: it has %d bytes of %d", st.Size(), t.geo.size())
}

// readStatic reads and checks the part of the header that never changes. After it, every offset from geo is inside the
// file.
func (t *Reader) readStatic() error {
	st, err := t.f.Stat()
	if err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	if !st.Mode().IsRegular() {
		return t.malformed("is no regular file (%v)", st.Mode().Type())
	}
	if st.Size() == 0 {
		return t.malformed("was emptied: it has 0 bytes")
	}
	if st.Size() < headerSize {
		return t.malformed("has %d bytes: less than the header of a tape, which has %d", st.Size(), headerSize)
	}
	var headers [1]header
	if err := t.readAt(bytesOf(headers[:]), 0); err != nil {
		return err
	}
	h := &headers[0]
	if string(h.magic[:]) != magic {
		return t.malformed("is no tape: it begins with %q, not %q", h.magic, magic)
	}
	if h.version != formatVersion {
		return t.malformed("has format %d; this program reads format %d", h.version, formatVersion)
	}
	if h.check != check(formatVersion, wordsOf(&h.static)) {
		return t.malformed("has a corrupt header: its check does not fit")
	}
	if err := t.readGeometry(&h.static); err != nil {
		return err
	}
	size := t.geo.size()
	if h.fileSize != uint64(size) {
		return t.malformed("claims a size of %d bytes; its parts have %d", h.fileSize, size)
	}
	if st.Size() < size {
		t.cut = st.Size()
	}
	if t.cut > 0 && !t.partial {
		return t.cutShort()
	}
	t.static = Header{
		PID: int(int32(h.pid)), PIDSpace: h.pidSpace,
		BootID:  string(getText(h.bootID[:])),
		Host:    string(getText(h.host[:])),
		Job:     string(getText(h.job[:])),
		Program: string(getText(h.program[:])),
		Version: string(getText(h.progVersion[:])),
		Created: time.Unix(0, h.createdWall),
		Rank:    int(h.rank), JobSize: int(h.jobSize),
		SlowAfter: time.Duration(h.slowAfter), StallAfter: time.Duration(h.stallAfter),
		KernelBoot: h.kernelBoot, Slots: t.geo.slots, Tallies: t.geo.tallies,
		mono: h.createdMono, wall: h.createdWall, createdMono: h.createdMono,
	}
	t.writer = process.ID{
		PID: t.static.PID, StartTicks: h.startTicks, PIDSpace: t.static.PIDSpace, BootID: h.kernelBoot,
	}
	t.process = t.writer.Here()
	return nil
}

// readGeometry reads how many of each part there are, and checks the bounds.
func (t *Reader) readGeometry(h *static) error {
	for _, part := range []struct {
		name        string
		got, lo, hi uint32
		power       bool
	}{
		{"slots", h.slots, 1, maxSlots, false},
		{"tallies", h.tallies, 1, maxTallies, false},
		{"life records", h.lifeRecords, minRing, maxLifeRecords, true},
		{"op records", h.opRecords, minRing, maxOpRecords, true},
	} {
		if part.got < part.lo || part.got > part.hi {
			return t.malformed("claims %d %s; allowed are %d to %d", part.got, part.name, part.lo, part.hi)
		}
		if part.power && part.got&(part.got-1) != 0 {
			return t.malformed("claims %d %s, which is not a power of two", part.got, part.name)
		}
	}
	if h.marked > h.slots {
		return t.malformed("claims marks of %d slots; it has %d", h.marked, h.slots)
	}
	if h.devices > h.marked {
		return t.malformed("claims device pages of %d slots; %d have marks", h.devices, h.marked)
	}
	t.geo = geometry{
		int(h.slots), int(h.tallies), int(h.lifeRecords), int(h.opRecords), int(h.marked), int(h.devices),
	}
	return nil
}

// Header returns what the tape says about its process now. Fields that change are zero if they can't be read.
func (t *Reader) Header() Header {
	h := t.static
	c, err := t.readChanging()
	if err != nil {
		return h
	}
	h.Closed = c.state == stateClosed
	h.Overflow = c.overflow
	h.Exported, h.Delivered = c.exported, c.delivered
	h.Terminated = c.terminated
	if h.Watched = c.seen != 0; c.seen != h.createdMono { // equal: telemetry has not read yet
		h.Seen = c.seen
	}
	h.Paused, h.Resumed, h.Exporter = c.paused, c.resumed, c.exporter
	h.Run, h.Starved = lifecycle.Run(c.run), time.Duration(c.starved)
	h.Unexpected = c.unexpected
	if c.agentPID > 0 && c.agentPID <= math.MaxInt32 {
		h.AgentPID = int(c.agentPID)
	}
	// If the pair can't be read, that of the tape's creation serves.
	if version, pair, ok := c.clock.current(); ok && version != 0 {
		h.mono, h.wall = pair.mono, pair.wall
	}
	return h
}

// readChanging reads the part of the header that changes, in one go.
func (t *Reader) readChanging() (changing, error) {
	var c [1]changing
	err := t.readAt(bytesOf(c[:]), changingAt)
	if err == nil && c[0].state == 0 && t.cut == 0 {
		err = t.malformed("was emptied: its header is gone")
	}
	return c[0], err
}

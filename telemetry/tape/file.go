package tape

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// FormatError says what is wrong with a file that should be a tape.
type FormatError struct {
	Path    string
	Problem string
}

func (e *FormatError) Error() string { return fmt.Sprintf("tape: %s %s", e.Path, e.Problem) }

// Header is what a tape says of the process that writes it. Its times are on the tape's clock,
// CLOCK_MONOTONIC in nanoseconds, but for Created.
type Header struct {
	PID              int
	BootID           string
	Host, Job        string
	Program, Version string
	Created          time.Time

	// KernelBoot is the kernel's own id of this boot of the machine, zero if unknown. All tapes with the same one
	// have one clock, whatever BootID their user gave them.
	KernelBoot process.BootID

	// Rank is the process's rank in the job, the first of several; -1 if unknown. JobSize is how many ranks the job
	// has; 0 if unknown.
	Rank, JobSize int

	// SlowAfter and StallAfter are how long an operation takes that the process calls slow and stalled; 0 if unknown.
	SlowAfter, StallAfter time.Duration

	Slots, Tallies int // how many it has room for

	Closed   bool   // the writer closed the tape cleanly
	Overflow uint64 // communicators that found the in-flight table full

	// Exported is until when the process has exported all spans of what it did, what was going on then included, as
	// unfinished. A reader of the tape need not export them once more. 0: the process doesn't say. AllExported: it is
	// dead, and a reader has sent all that it left.
	Exported int64
	// Delivered is until when the spans of all that had ended were taken by whatever the process exports to. 0: the
	// process doesn't say, for it exports none, or some were not taken.
	Delivered int64
	// Terminated is when the process was told to end from outside, by SIGTERM; 0: never.
	Terminated int64
	// Seen is when the process's own telemetry looked at its communicators last: it ran until then at least, so a
	// process that doesn't run any more shows by it. 0: it never looked.
	Seen int64
	// Paused and Resumed are when the process stopped for the last time and when it went on, as its telemetry noticed
	// afterwards: a SIGSTOP, or a machine that stood still. 0: it never did.
	Paused, Resumed int64
	// Exporter is a number for where the process exports its spans, and as what: those who have the same can send what
	// it leaves. 0: it exports none.
	Exporter uint64
	// Run is the run of the job that the process is part of; 0 until it is known.
	Run lifecycle.Run

	mono, wall  int64 // one moment on both clocks
	createdMono int64 // Created on the tape's clock
}

// WallShift is how far the time of day went ahead of the tape's clock (negative: fell behind it) between the tape's
// creation and its last act: what a clock that is set shows as a jump.
func (h Header) WallShift() time.Duration {
	return time.Duration((h.wall - h.Created.UnixNano()) - (h.mono - h.createdMono))
}

// Wall turns a time of the tape (CLOCK_MONOTONIC, ns) into the time of day.
func (h Header) Wall(mono int64) time.Time { return time.Unix(0, h.wall+(mono-h.mono)) }

// file is a tape that is read. It is read with pread(2), never through a mapping: a file that is cut short while it
// is read gives an error and not a SIGBUS, and the race detector has nothing to see.
type file struct {
	f       *os.File
	path    string
	partial bool  // what is missing at the end reads as zeros
	cut     int64 // the size of a tape that was cut short and is read all the same; 0: it is whole
	geo     geometry
	static  Header
	process process.ID

	mu           sync.Mutex // guards what follows
	table, again []slot     // scratch for reading the in-flight table
	marks        []marks    // the same; nil if it has none
	reached      []reached
	devices      []DevicePage
	counts       []tally // scratch for reading tallies
	texts        texts   // of both
}

// openFile opens and checks a tape; flag is os.O_RDONLY or os.O_RDWR.
func openFile(path string, flag int, partial bool) (*file, error) {
	// Not blocking and not following, in case that somebody put a pipe or a link there.
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &FormatError{path, "is a symbolic link, which a tape never is"}
	}
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	t := &file{f: f, path: path, partial: partial, texts: texts{}}
	if err := t.readStatic(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return t, nil
}

// Path is the file's name, as it was given.
func (t *file) Path() string { return t.path }

// Process is the process that writes, or wrote, the tape, as this pid namespace numbers it where it can.
func (t *file) Process() process.ID { return t.process }

// Liveness looks the process up that writes, or wrote, the tape.
func (t *file) Liveness() process.Liveness { return t.process.Liveness() }

func (t *file) malformed(format string, args ...any) error {
	return &FormatError{t.path, fmt.Sprintf(format, args...)}
}

// readAt fills b from off on. Of a tape that is cut short while it is read, nothing is read any more: its writer has
// given it up, and what is left stands still.
func (t *file) readAt(b []byte, off int64) error {
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

// cutShort says how much there is of a tape that was cut short.
func (t *file) cutShort() error {
	st, err := t.f.Stat()
	if err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	return t.malformed("was cut short: it has %d bytes of %d", st.Size(), t.geo.size())
}

// readStatic reads and checks what never changes. After it, every offset that geo gives is inside the file.
func (t *file) readStatic() error {
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
		PID:     int(int32(h.pid)),
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
	t.process = process.ID{
		PID: t.static.PID, StartTicks: h.startTicks, PIDSpace: h.pidSpace, BootID: h.kernelBoot,
	}.Here()
	return nil
}

// Header is what the tape says of its process now: of what changes, as far as it can be read.
func (t *file) Header() Header {
	h := t.static
	c, err := t.readChanging()
	if err != nil {
		return h
	}
	h.Closed = c.state == stateClosed
	h.Overflow = c.overflow
	h.Exported, h.Delivered = c.exported, c.delivered
	h.Terminated, h.Seen = c.terminated, c.seen
	h.Paused, h.Resumed, h.Exporter = c.paused, c.resumed, c.exporter
	h.Run = lifecycle.Run(c.run)
	// While a pair is being refreshed, that of the beginning serves as well.
	if version, pair, ok := c.clock.current(); ok && version != 0 {
		h.mono, h.wall = pair.mono, pair.wall
	}
	return h
}

// readChanging reads the part of the header that changes, in one go.
func (t *file) readChanging() (changing, error) {
	var c [1]changing
	err := t.readAt(bytesOf(c[:]), changingAt)
	if err == nil && c[0].state == 0 && t.cut == 0 {
		err = t.malformed("was emptied: its header is gone")
	}
	return c[0], err
}

package tape

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// FormatError says what is wrong with a file that should be a tape.
type FormatError struct {
	Path    string
	Problem string
}

func (e *FormatError) Error() string { return fmt.Sprintf("tape: %s %s", e.Path, e.Problem) }

// Header is what a tape says of the process that writes it, and of itself.
type Header struct {
	Format           uint32
	PID              int
	BootID           string
	Host, Job        string
	Program, Version string
	Created          time.Time

	Slots, Tallies, LifeRecords, OpRecords int

	// KernelBoot is the kernel's own id of this boot of the machine, zero if unknown. All tapes with the same one have one clock,
	// whatever BootID their user gave them.
	KernelBoot process.BootID

	Closed   bool   // the writer closed the tape cleanly
	Overflow uint64 // communicators that found the in-flight table full

	// Exported is until when, on the tape's clock, the process has exported all spans of what it did, what was going on then included, as
	// unfinished. 0: it doesn't say.
	Exported int64

	// Delivered is until when, on the tape's clock, the spans of all that had ended were taken by who the process exports to. 0: it doesn't
	// say, for it exports none, or some were not taken.
	Delivered int64

	mono, wall  int64 // one moment on both clocks
	createdMono int64 // Created on the tape's clock
}

// WallShift is how far the time of day went ahead of the tape's clock (negative: fell behind it) between the tape's creation and its last act:
// what a clock that is set shows as a jump.
func (h Header) WallShift() time.Duration {
	return time.Duration((h.wall - h.Created.UnixNano()) - (h.mono - h.createdMono))
}

// Wall turns a time of the tape (CLOCK_MONOTONIC, ns) into the time of day.
func (h Header) Wall(mono int64) time.Time { return time.Unix(0, h.wall+(mono-h.mono)) }

// file is a tape that is read. It is read with pread(2), never through a mapping: a file that is cut short while it is read
// gives an error and not a SIGBUS, and the race detector has nothing to see.
type file struct {
	f       *os.File
	path    string
	partial bool  // what is missing at the end reads as zeros
	cut     int64 // the size of a tape that was cut short and is read all the same; 0: it is whole
	geo     geometry
	static  Header
	process process.ID

	mu         sync.Mutex // guards what follows
	table      []byte     // scratch for reading the in-flight table
	again      []byte
	texts      []slotTexts // by slot
	counts     []byte      // scratch for reading tallies
	tallyTexts []slotTexts // by tally
}

// openFile opens and checks a tape; flag is os.O_RDONLY or os.O_RDWR. A partial one may be cut short behind its header.
func openFile(path string, flag int, partial bool) (*file, error) {
	// Not blocking and not following, in case that somebody put a pipe or a link there.
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &FormatError{path, "is a symbolic link, which a tape never is"}
	}
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	t := &file{f: f, path: path, partial: partial}
	if err := t.readStatic(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return t, nil
}

func (t *file) malformed(format string, args ...any) error {
	return &FormatError{t.path, fmt.Sprintf(format, args...)}
}

// readAt fills b from off on.
func (t *file) readAt(b []byte, off int64) error {
	n, err := t.f.ReadAt(b, off)
	switch {
	case errors.Is(err, io.EOF) && t.cut > 0 && off+int64(len(b)) <= t.geo.size():
		clear(b[n:]) // as if it had never been written
	case errors.Is(err, io.EOF):
		return t.malformed("was cut short: there is nothing more at byte %d", off)
	case err != nil:
		return fmt.Errorf("tape: %w", err)
	}
	return nil
}

func (t *file) readWord(off int64) (uint64, error) {
	var b [wordSize]byte
	err := t.readAt(b[:], off)
	return binary.LittleEndian.Uint64(b[:]), err
}

// readStatic reads and checks the part of the header that never changes. After it, every offset that geo gives is inside the file.
func (t *file) readStatic() error {
	st, err := t.f.Stat()
	if err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	if !st.Mode().IsRegular() {
		return t.malformed("is no regular file (%v)", st.Mode().Type())
	}
	if st.Size() < headerSize {
		return t.malformed("has %d bytes: less than the header of a tape, which has %d", st.Size(), headerSize)
	}
	b := make([]byte, headerSize)
	if err := t.readAt(b, 0); err != nil {
		return err
	}
	le := binary.LittleEndian
	if string(b[hdrMagic:hdrMagic+len(magic)]) != magic {
		return t.malformed("is no tape: it begins with %q, not %q", b[hdrMagic:hdrMagic+len(magic)], magic)
	}
	if v := le.Uint32(b[hdrVersion:]); v != formatVersion {
		return t.malformed("has format %d; this program reads format %d", v, formatVersion)
	}
	if le.Uint64(b[hdrCheck:]) != uint64(foldHeader(b)) {
		return t.malformed("has a corrupt header: its check does not fit")
	}

	g := geometry{
		slots: int(le.Uint32(b[hdrSlotCount:])), tallies: int(le.Uint32(b[hdrTallyCount:])),
		life: int(le.Uint32(b[hdrLifeCount:])), op: int(le.Uint32(b[hdrOpCount:])),
	}
	for _, part := range []struct {
		name        string
		got, lo, hi int
		power       bool
	}{
		{"slots", g.slots, 1, maxSlots, false},
		{"tallies", g.tallies, 1, maxTallies, false},
		{"life records", g.life, minRing, maxLifeRecords, true},
		{"op records", g.op, minRing, maxOpRecords, true},
	} {
		if part.got < part.lo || part.got > part.hi {
			return t.malformed("claims %d %s; allowed are %d to %d", part.got, part.name, part.lo, part.hi)
		}
		if part.power && part.got&(part.got-1) != 0 {
			return t.malformed("claims %d %s, which is not a power of two", part.got, part.name)
		}
	}
	for _, field := range []struct {
		name      string
		got, want uint64
	}{
		{"header size", uint64(le.Uint32(b[hdrHeaderSize:])), headerSize},
		{"slot size", uint64(le.Uint32(b[hdrSlotSize:])), slotSize},
		{"record size", uint64(le.Uint32(b[hdrRecordSize:])), recordSize},
		{"offset of the slots", le.Uint64(b[hdrSlotOffset:]), uint64(g.slotOffset())},
		{"tally size", uint64(le.Uint32(b[hdrTallySize:])), tallySize},
		{"offset of the tallies", le.Uint64(b[hdrTallyOffset:]), uint64(g.tallyOffset())},
		{"offset of the life ring", le.Uint64(b[hdrLifeOffset:]), uint64(g.lifeOffset())},
		{"offset of the op ring", le.Uint64(b[hdrOpOffset:]), uint64(g.opOffset())},
		{"offset of the ordinary ring", le.Uint64(b[hdrOrdinaryOffset:]), uint64(g.ordinaryOffset())},
		{"file size", le.Uint64(b[hdrFileSize:]), uint64(g.size())},
	} {
		if field.got != field.want {
			return t.malformed("has a %s of %d that should be %d", field.name, field.got, field.want)
		}
	}
	if st.Size() < g.size() {
		t.cut = st.Size()
	}
	if t.cut > 0 && !t.partial {
		return t.malformed("was cut short: it has %d bytes of %d", st.Size(), g.size())
	}
	t.geo = g
	t.static = Header{
		Format:  formatVersion,
		PID:     int(int32(le.Uint32(b[hdrPID:]))),
		BootID:  string(getText(b[hdrBootID:][:bootIDSize])),
		Host:    string(getText(b[hdrHost:][:hostSize])),
		Job:     string(getText(b[hdrJob:][:jobSize])),
		Program: string(getText(b[hdrProgram:][:programSize])),
		Version: string(getText(b[hdrProgVersion:][:progVersionSize])),
		Created: time.Unix(0, int64(le.Uint64(b[hdrCreatedWall:]))),
		Slots:   g.slots, Tallies: g.tallies, LifeRecords: g.life, OpRecords: g.op,
		KernelBoot:  process.BootID(b[hdrKernelBoot:]),
		mono:        int64(le.Uint64(b[hdrCreatedMono:])),
		wall:        int64(le.Uint64(b[hdrCreatedWall:])),
		createdMono: int64(le.Uint64(b[hdrCreatedMono:])),
	}
	t.process = process.ID{
		PID: t.static.PID, StartTicks: le.Uint64(b[hdrStartTicks:]), PIDSpace: le.Uint64(b[hdrPIDSpace:]),
		BootID: t.static.KernelBoot,
	}
	return nil
}

// header is static with what changes, as far as it can be read.
func (t *file) header() Header {
	h := t.static
	b, err := t.readMoment()
	if err != nil {
		return h
	}
	h.Closed = b.word(hdrState) == stateClosed
	h.Overflow = b.word(hdrOverflow)
	h.Exported = int64(b.word(hdrExported))
	h.Delivered = int64(b.word(hdrDelivered))
	var copies [4]uint64
	getWords(copies[:], b[hdrClock+wordSize-hdrState:])
	// One that is torn is being refreshed; the pair of the beginning serves as well.
	if pair, ok := latched(b.word(hdrClock), copies[:], 2); ok && b.word(hdrClock) != 0 {
		h.mono, h.wall = int64(pair[0]), int64(pair[1])
	}
	return h
}

// moment is the changing part of the header, read in one go.
type moment [hdrDelivered + wordSize - hdrState]byte

func (t *file) readMoment() (m moment, err error) {
	err = t.readAt(m[:], hdrState)
	return m, err
}

func (m *moment) word(off int) uint64 { return binary.LittleEndian.Uint64(m[off-hdrState:]) }

package tape

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape/internal/hole"
)

// Writer is one process's tape. It is safe for concurrent use. A nil *Writer is the tape switched off: every method
// is a no-op.
//
// A file that loses its pages while it is written, since somebody truncates it or its disk fails, is given up: what is
// written later goes nowhere, and readers are told that the tape was cut short.
type Writer struct {
	path   string
	length int64
	*mapping

	mu     sync.Mutex
	free   []int                 // slots of the table, the longest unused first
	idle   map[tallyKey][]*tally // tallies that nobody writes
	number uint32                // of the last communicator
	closed bool

	every uint64 // 1 in so many operations is sampled; 0: none
	slow  int64  // ns from which an operation is slow

	clock          sync.Mutex // orders the refreshing of the header's clock
	clockRefreshed atomic.Int64
}

// mapping is the file in memory, until nothing refers to it: a communicator may write after Close.
type mapping struct {
	*changing
	slots            []slot
	tallies          []tally
	lifeRing, opRing ring
	ordinary         []page        // the ordinary ring
	written          []atomic.Bool // its pages: a communicator is on it
	marks            []marks
	devices          []DevicePage
}

// ring is a ring of records in the mapping.
type ring struct {
	head    *uint64
	records []record
	mask    uint64
}

// Create makes the tape of this process: Dir/Job/Host-PID.tape, readable and writable by this user alone. It reserves
// the whole file, so that writing can't fail later. A second tape of one process gets a number in its name. What an
// earlier process with the same name left is renamed to end in .old.tape. The error says what helps; a program that
// gets it can go on with a nil Writer.
func Create(cfg Config) (*Writer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	f, path, err := createFile(cfg)
	if err != nil {
		return nil, err
	}
	m, err := mapFile(f, cfg.geometry())
	_ = f.Close() // the mapping stays
	if err != nil {
		_ = os.Remove(path)
		return nil, refused(path, "can't be mapped into memory", elsewhere, err)
	}
	w := &Writer{
		path: path, length: cfg.geometry().size(), mapping: m, free: make([]int, cfg.Slots),
		idle: make(map[tallyKey][]*tally), every: uint64(max(cfg.SampleEvery, 0)), slow: int64(cfg.Slow),
	}
	for i := range w.free {
		w.free[i] = i
	}
	w.refreshClock(Now())
	return w, nil
}

func mapFile(f *os.File, g geometry) (*mapping, error) {
	// Populated, so that no operation of the first lap pays for a page fault.
	mem, err := unix.Mmap(int(f.Fd()), 0, int(g.size()), unix.PROT_READ|unix.PROT_WRITE, mapFlags)
	if err != nil {
		return nil, err
	}
	h := (*header)(unsafe.Pointer(unsafe.SliceData(mem)))
	region := hole.Protect(mem)
	m := &mapping{
		changing: &h.changing,
		slots:    part[slot](mem, g.slotOffset(), g.slots),
		tallies:  part[tally](mem, g.tallyOffset(), g.tallies),
		lifeRing: ring{&h.changing.lifeHead, part[record](mem, g.lifeOffset(), g.life), uint64(g.life - 1)},
		opRing:   ring{&h.changing.opHead, part[record](mem, g.opOffset(), g.op), uint64(g.op - 1)},
		ordinary: part[page](mem, g.ordinaryOffset(), g.pages()),
		written:  make([]atomic.Bool, g.pages()),
	}
	if g.devices > 0 {
		m.marks = part[marks](mem, g.marksOffset(), g.marked)
		m.devices = part[DevicePage](mem, g.deviceOffset(), g.devices)
	}
	runtime.AddCleanup(m, func(mem []byte) {
		region.Release()
		_ = unix.Munmap(mem)
	}, mem)
	return m, nil
}

// part is n parts of the mapping, from an offset on.
func part[T any](mem []byte, from int64, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[from])), n)
}

// Path is the file's name; empty for a nil Writer.
func (w *Writer) Path() string {
	if w == nil {
		return ""
	}
	return w.path
}

// Close marks the tape as closed cleanly, which is how readers tell an end from a death. The file stays, for them;
// see SweepJobs. It never blocks and closes once.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.refreshClock(Now())
	atomic.StoreUint64(&w.state, stateClosed)
	w.ringBell()
	return nil
}

// Exported says on the tape what Header.Exported tells. The latest word counts.
func (w *Writer) Exported(until int64) { atomic.StoreInt64(&w.head().exported, until) }

// Delivered says on the tape what Header.Delivered tells. The latest word counts.
func (w *Writer) Delivered(until int64) { atomic.StoreInt64(&w.head().delivered, until) }

// Terminated says on the tape that the process was told to end from outside, and when, by Now. The latest word
// counts.
func (w *Writer) Terminated(at int64) { atomic.StoreInt64(&w.head().terminated, at) }

// Saw says on the tape what Header.Seen tells. It is a single store, for a caller that comes by often. The latest word
// counts.
func (w *Writer) Saw(at int64) { atomic.StoreInt64(&w.head().seen, at) }

// Resumed says on the tape that the process has run again since a time by Now, after it had not since paused. The
// latest words count.
func (w *Writer) Resumed(paused, since int64) {
	atomic.StoreInt64(&w.head().paused, paused)
	atomic.StoreInt64(&w.head().resumed, since)
}

// Exporter says on the tape what Header.Exporter tells.
func (w *Writer) Exporter(number uint64) { atomic.StoreUint64(&w.head().exporter, number) }

// Run says on the tape which run of the job its process is part of.
func (w *Writer) Run(run lifecycle.Run) { atomic.StoreUint64(&w.head().run, uint64(run)) }

// head is what changes in the header; of a tape that is switched off, memory that nobody reads.
func (w *Writer) head() *changing {
	if w == nil {
		return new(changing)
	}
	return w.changing
}

// Comm takes a slot of the in-flight table for a communicator that begins its life. If the table is full, the
// communicator is in the rings alone, and the header's Overflow counts it. After Close it returns nil.
func (w *Writer) Comm(info CommInfo) *CommWriter { return w.comm(info, false) }

// DeviceComm is Comm for a communicator on a device: it gets a slot with a DevicePage, if one is free.
func (w *Writer) DeviceComm(info CommInfo) *CommWriter { return w.comm(info, true) }

func (w *Writer) comm(info CommInfo, device bool) *CommWriter {
	if w == nil {
		return nil
	}
	c := &CommWriter{w: w, index: -1, slot: new(slot), info: info, seed: sampleSeed(info.ID)}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.number++
	c.number, c.root = w.number, w.number
	if len(w.free) > 0 {
		fits := func(index int) bool { return (index < len(w.devices)) == device }
		at := max(slices.IndexFunc(w.free, fits), 0)
		c.index = w.free[at]
		w.free = slices.Delete(w.free, at, at+1)
		c.slot = &w.slots[c.index]
	} else {
		atomic.AddUint64(&w.overflow, 1)
	}
	w.mu.Unlock()
	c.comm = pack32(int32(c.number), int32(c.index))

	c.mu.Lock()
	defer c.mu.Unlock()
	c.op = &operations{wait: -1, pageUsed: pageWords}
	c.op.version, _, _ = c.slot.op.current()
	c.slot.counters, c.slot.captured = counters{}, 0
	c.show(&pending{}) // first, so that nobody sees the last owner's operation under the new one's name
	c.showInfo(c.number)
	c.writeInfo(kindComm)
	return c
}

// release gives a slot back.
func (w *Writer) release(index int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, index)
}

// reserve reserves n records, and returns the index of the first.
func (g *ring) reserve(n uint64) (first uint64) { return atomic.AddUint64(g.head, n) - n }

// at is the place of a record.
func (g *ring) at(index uint64) *record { return &g.records[index&g.mask] }

// wakeAtQuarter wakes followers when n op records from first on complete a quarter of the ring, so that they miss none.
func (m *mapping) wakeAtQuarter(first, n uint64) {
	if quarter := (m.opRing.mask + 1) / 4; (first^(first+n))&^(quarter-1) != 0 {
		m.ringBell()
	}
}

// putLife writes a record of the life ring and its tail in one piece, and wakes followers.
func (m *mapping) putLife(kind uint8, r *record, tail []byte) {
	more := uint64(len(tail)+tailPerRecord-1) / tailPerRecord
	// Before the index is reserved; see cursor.
	r[recLifeOpHead] = atomic.LoadUint64(m.opRing.head)
	first := m.lifeRing.reserve(1 + more)
	put := func(index uint64, kind uint8, r *record) {
		store(m.lifeRing.at(index), index, kind, r[1], r[2], r[3], r[4], r[5], r[6], r[7])
	}
	for i := range more {
		var c record
		copy(bytesOf(c[1:]), tail[i*tailPerRecord:])
		put(first+1+i, kindContinue, &c)
	}
	put(first, kind, r)
	m.ringBell()
}

// ringBell wakes the followers that sleep; see Follower.sleep for why none sleeps over what was stored before.
func (m *mapping) ringBell() {
	atomic.AddUint32(&m.bell, 1)
	m.wakeWaiting()
}

// wakeWaiting is the other half of ringBell. A follower that was awake in between has seen the new bell, and takes it
// that it is announced still: the bell goes up once more, so that it doesn't go to sleep on that.
func (m *mapping) wakeWaiting() {
	if atomic.LoadUint32(&m.waiting) != 0 && atomic.SwapUint32(&m.waiting, 0) != 0 {
		atomic.AddUint32(&m.bell, 1)
		_ = futexWake(&m.bell)
	}
}

func wallNow() int64 { return time.Now().UnixNano() }

// refreshEvery is how old the header's pair of clocks may become: the time of day is stepped, CLOCK_MONOTONIC is not.
const refreshEvery = int64(time.Second)

func (w *Writer) refreshClock(now int64) {
	if last := w.clockRefreshed.Load(); last != 0 && now-last < refreshEvery {
		return
	}
	if !w.clock.TryLock() {
		return
	}
	defer w.clock.Unlock()
	w.pairClocks(readTogether(Now, wallNow))
	w.clockRefreshed.Store(now)
}

// clockSet is how far the time of day must be off for the header's pair to be replaced: a new pair for each look would
// give one moment many times of day.
const clockSet = int64(time.Millisecond)

// pairClocks publishes one moment on both clocks, unless the published pair still tells it, as far as can be seen
// from readings that are within so long. The caller holds w.clock.
func (w *Writer) pairClocks(mono, wall, within int64) {
	version, pair, ok := w.changing.clock.current()
	if ok && version != 0 {
		if off := wall - mono - (pair.wall - pair.mono); -clockSet-within < off && off < clockSet+within {
			return
		}
	}
	w.changing.clock.publish(clockPair{mono, wall})
}

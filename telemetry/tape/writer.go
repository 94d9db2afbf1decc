package tape

import (
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Writer is one process's tape. It is safe for concurrent use. A nil *Writer is the tape switched off: every method
// is a no-op.
type Writer struct {
	path string
	*mapping

	mu     sync.Mutex
	free   []int                              // slots of the table, the longest unused first
	idle   map[tallyKey][]*[tallyWords]uint64 // tallies that nobody writes
	number uint32                             // of the last communicator
	closed bool

	every uint64 // 1 in so many operations is sampled; 0: none
	slow  int64  // ns from which an operation is slow

	clock          sync.Mutex // orders the refreshing of the header's clock
	clockRefreshed atomic.Int64
}

// mapping is the file in memory. It is unmapped when nothing refers to it any more and not before, so that a
// communicator that writes after Close does no harm.
type mapping struct {
	header, slots, tallies []uint64
	lifeRing, opRing       ring
	bell, waiting          *uint32

	ordinary []uint64      // the ordinary ring
	written  []atomic.Bool // its pages: a communicator is on it
}

// ring is a ring of records in the mapping.
type ring struct {
	head  *uint64
	words []uint64
	mask  uint64
}

// Create makes the tape of this process: Dir/Job/Host-PID.tape, readable and writable by this user alone. It reserves
// the whole file, so that writing can't fail later. A second tape of one process gets a number in its name. What an
// earlier process with the same name left is renamed to end in .old.tape. The error is a *CreateError, or one of
// Config.Validate; then the program can go on with a nil Writer.
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
		return nil, &CreateError{path, "can't be mapped into memory", elsewhere, err}
	}
	w := &Writer{
		path: path, mapping: m, free: make([]int, cfg.Slots), idle: make(map[tallyKey][]*[tallyWords]uint64),
		every: uint64(max(cfg.SampleEvery, 0)), slow: int64(cfg.Slow),
	}
	for i := range w.free {
		w.free[i] = i
	}
	w.refreshClock(Now())
	return w, nil
}

func mapFile(f *os.File, g geometry) (*mapping, error) {
	// Populated, so that no operation of the first lap pays for a page fault.
	mem, err := unix.Mmap(int(f.Fd()), 0, int(g.size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/wordSize)
	part := func(from, to int64) []uint64 { return words[from/wordSize : to/wordSize] }
	m := &mapping{
		header: part(0, headerSize), slots: part(g.slotOffset(), g.tallyOffset()),
		tallies: part(g.tallyOffset(), g.lifeOffset()),
	}
	m.lifeRing = ring{m.word(hdrLifeHead), part(g.lifeOffset(), g.opOffset()), uint64(g.life - 1)}
	m.opRing = ring{m.word(hdrOpHead), part(g.opOffset(), g.ordinaryOffset()), uint64(g.op - 1)}
	m.ordinary, m.written = part(g.ordinaryOffset(), g.size()), make([]atomic.Bool, g.pages())
	m.bell = (*uint32)(unsafe.Pointer(m.word(hdrBell)))
	m.waiting = (*uint32)(unsafe.Pointer(m.word(hdrWaiting)))
	runtime.AddCleanup(m, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return m, nil
}

// word is a word of the header.
func (m *mapping) word(offset int) *uint64 { return &m.header[offset/wordSize] }

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
	atomic.StoreUint64(w.word(hdrState), stateClosed)
	w.ringBell()
	return nil
}

// Exported says on the tape what Header.Exported tells. The latest word counts.
func (w *Writer) Exported(until int64) { w.tell(hdrExported, until) }

// Delivered says on the tape what Header.Delivered tells. The latest word counts.
func (w *Writer) Delivered(until int64) { w.tell(hdrDelivered, until) }

// Terminated says on the tape that the process was told to end from outside, and when, by Now. The latest word
// counts.
func (w *Writer) Terminated(at int64) { w.tell(hdrTerminated, at) }

// Saw says on the tape what Header.Seen tells. It is a single store, for a caller that comes by often. The latest word
// counts.
func (w *Writer) Saw(at int64) { w.tell(hdrSeen, at) }

// Resumed says on the tape that the process has run again since a time by Now, after it had not since paused. The
// latest words count.
func (w *Writer) Resumed(paused, since int64) {
	w.tell(hdrPaused, paused)
	w.tell(hdrResumed, since)
}

func (w *Writer) tell(offset int, at int64) {
	if w != nil {
		atomic.StoreUint64(w.word(offset), uint64(at))
	}
}

// Comm takes a slot of the in-flight table for a communicator that begins its life. If the table is full, the
// communicator is in the rings alone, and the header's Overflow counts it. After Close it returns nil.
func (w *Writer) Comm(info CommInfo) *CommWriter {
	if w == nil {
		return nil
	}
	c := &CommWriter{w: w, index: -1, slot: new([slotWords]uint64), info: info, seed: sampleSeed(info.ID)}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.number++
	c.number, c.root = w.number, w.number
	if len(w.free) > 0 {
		c.index = w.free[0]
		w.free = w.free[1:]
		c.slot = (*[slotWords]uint64)(w.slots[c.index*slotWords:])
	} else {
		atomic.AddUint64(w.word(hdrOverflow), 1)
	}
	w.mu.Unlock()
	c.comm = pack32(int32(c.number), int32(c.index))

	c.mu.Lock()
	defer c.mu.Unlock()
	c.op = &operations{wait: -1, pageUsed: pageWords}
	c.op.list = c.op.first[:]
	c.op.version, _, _ = current(c.slot[slotOp/wordSize:], opWords)
	clear(c.slot[slotLaunched/wordSize : slotInfo/wordSize])
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
func (g *ring) at(index uint64) *[recordWords]uint64 {
	return (*[recordWords]uint64)(g.words[(index&g.mask)*recordWords:])
}

// wakeAtQuarter wakes followers when n records of the op ring from first on complete a quarter of it: often enough
// that they miss none, and seldom enough to cost nothing.
func (m *mapping) wakeAtQuarter(first, n uint64) {
	if quarter := (m.opRing.mask + 1) / 4; (first^(first+n))&^(quarter-1) != 0 {
		m.ringBell()
	}
}

// putLife writes a record of the life ring and its tail in one piece, and wakes followers.
func (m *mapping) putLife(kind uint8, r *[recordWords]uint64, tail []byte) {
	more := uint64(len(tail)+tailPerRecord-1) / tailPerRecord
	// Before the index is reserved: so no operation that comes after a later record of this ring can be below it; see
	// cursor.
	r[recLifeOpHead] = atomic.LoadUint64(m.opRing.head)
	first := m.lifeRing.reserve(1 + more)
	put := func(index uint64, kind uint8, r *[recordWords]uint64) {
		store(m.lifeRing.at(index), index, kind, r[1], r[2], r[3], r[4], r[5], r[6], r[7])
	}
	for i := range more {
		var c [recordWords]uint64
		getWords(c[1:], tail[i*tailPerRecord:])
		put(first+1+i, kindContinue, &c)
	}
	put(first, kind, r)
	m.ringBell()
}

// ringBell wakes the followers that sleep. What they shall see was stored before; together with their order (waiting
// first, then a last look) none sleeps over it.
func (m *mapping) ringBell() {
	atomic.AddUint32(m.bell, 1)
	m.wakeWaiting()
}

// wakeWaiting is the other half of ringBell. A follower that was awake in between has seen the new bell, and takes it
// that it is announced still: the bell goes up once more, so that it doesn't go to sleep on that.
func (m *mapping) wakeWaiting() {
	if atomic.LoadUint32(m.waiting) != 0 && atomic.SwapUint32(m.waiting, 0) != 0 {
		atomic.AddUint32(m.bell, 1)
		_ = futexWake(m.bell)
	}
}

// refreshEvery is how old the header's pair of clocks may become before a record of the life ring refreshes it: the
// time of day is stepped by people and by NTP, CLOCK_MONOTONIC is not.
const refreshEvery = int64(time.Second)

func (w *Writer) refreshClock(now int64) {
	if last := w.clockRefreshed.Load(); last != 0 && now-last < refreshEvery {
		return
	}
	if !w.clock.TryLock() {
		return
	}
	defer w.clock.Unlock()
	w.pairClocks(bothClocks())
	w.clockRefreshed.Store(now)
}

// bothClocks reads both clocks at one moment, as well as it can: within how long is the time from the first reading
// to the last. If it is preempted between them it tries again.
func bothClocks() (mono, wall, within int64) {
	const tight, tries = int64(20 * time.Microsecond), 8
	within = math.MaxInt64
	for range tries {
		before := Now()
		w := time.Now().UnixNano()
		after := Now()
		if after-before < within {
			mono, wall, within = before+(after-before)/2, w, after-before
		}
		if within <= tight {
			break
		}
	}
	return mono, wall, within
}

// clockSet is how far the time of day must be off for the header's pair to be replaced. Reading two clocks one after
// the other takes a while, and a new pair for each look would give one moment a different time of day in everything
// that is told of it.
const clockSet = int64(time.Millisecond)

// pairClocks publishes one moment on both clocks, unless the published pair still tells it, as far as can be seen
// from readings that are within so long. The caller holds w.clock.
func (w *Writer) pairClocks(mono, wall, within int64) {
	latch := w.header[hdrClock/wordSize:]
	version, pair, ok := current(latch, 2)
	if ok && version != 0 {
		if off := wall - mono - int64(pair[1]-pair[0]); -clockSet-within < off && off < clockSet+within {
			return
		}
	}
	publish(latch, version+1, []uint64{uint64(mono), uint64(wall)})
}

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

// Writer is one process's tape. It is safe for concurrent use. A nil *Writer is the tape switched off: every method is a no-op.
type Writer struct {
	path string
	*mapping

	mu     sync.Mutex
	free   []int                    // slots of the table, the longest unused first
	idle   map[tallyKey][]heldTally // tallies that nobody writes
	number uint32
	closed bool

	every uint64 // 1 in so many operations is sampled; 0: none
	slow  int64  // ns from which an operation is slow

	clock sync.Mutex // orders the refreshing of the header's clock
}

// mapping is the file in memory. It is unmapped when nothing refers to it any more and not before, so that a communicator that
// writes after Close does no harm.
type mapping struct {
	header, slots  []uint64
	tallies        []uint64
	talliesUsed    *uint64
	lifeRing       ring
	opRing         ring
	ordinaryRing   ring
	bell, waiting  *uint32
	overflow       *uint64
	clockRefreshed atomic.Int64
}

// ring is a ring of records, or of pages, in the mapping.
type ring struct {
	head  *uint64
	words []uint64
	mask  uint64
}

// Create makes the tape of this process: Dir/Job/Host-PID.tape, readable and writable by this user alone. It reserves the whole file,
// so that writing can't fail later. A second tape of one process gets a number in its name. What an earlier process with the same name
// left is renamed to end in .old.tape. The error is a *CreateError, or one of Config.Validate; then the program can go on with a nil Writer.
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
		path: path, mapping: m, free: make([]int, cfg.Slots), idle: make(map[tallyKey][]heldTally),
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
	m := &mapping{header: part(0, headerSize), slots: part(g.slotOffset(), g.tallyOffset()), tallies: part(g.tallyOffset(), g.lifeOffset())}
	m.talliesUsed = &m.header[hdrTallies/wordSize]
	m.lifeRing = ring{&m.header[hdrLifeHead/wordSize], part(g.lifeOffset(), g.opOffset()), uint64(g.life - 1)}
	m.opRing = ring{&m.header[hdrOpHead/wordSize], part(g.opOffset(), g.ordinaryOffset()), uint64(g.op - 1)}
	m.ordinaryRing = ring{&m.header[hdrOrdinaryHead/wordSize], part(g.ordinaryOffset(), g.size()), uint64(g.pages() - 1)}
	m.bell = (*uint32)(unsafe.Pointer(&m.header[hdrBell/wordSize]))
	m.waiting = (*uint32)(unsafe.Pointer(&m.header[hdrWaiting/wordSize]))
	m.overflow = &m.header[hdrOverflow/wordSize]
	runtime.AddCleanup(m, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return m, nil
}

// Path is the file's name; empty for a nil Writer.
func (w *Writer) Path() string {
	if w == nil {
		return ""
	}
	return w.path
}

// Close marks the tape as closed cleanly, which is how readers tell an end from a death. The file stays, for them; see Sweep. It never
// blocks and closes once.
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
	atomic.StoreUint64(&w.header[hdrState/wordSize], stateClosed)
	w.ringBell()
	return nil
}

// Exported says on the tape that all spans of what happened until a moment of the tape's clock have been exported, and what was going on
// then as unfinished: who reads the tape of the process after its death need not do it again. The latest word counts.
func (w *Writer) Exported(until int64) {
	if w != nil {
		atomic.StoreUint64(&w.header[hdrExported/wordSize], uint64(until))
	}
}

// Delivered says on the tape that the spans of all that had ended until a moment of the tape's clock were taken by who they are exported to.
// The latest word counts.
func (w *Writer) Delivered(until int64) {
	if w != nil {
		atomic.StoreUint64(&w.header[hdrDelivered/wordSize], uint64(until))
	}
}

// Comm takes a slot of the in-flight table for a communicator that begins its life. If the table is full, the communicator is in the
// rings alone, and the header's Overflow counts it. After Close it returns nil.
func (w *Writer) Comm(info CommInfo) *CommWriter {
	if w == nil {
		return nil
	}
	c := &CommWriter{
		w: w, index: -1, slot: new([slotWords]uint64), info: info, op: &operations{wait: -1},
		slow: w.slow, every: w.every, seed: sampleSeed(info.ID),
	}
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
		atomic.AddUint64(w.overflow, 1)
	}
	w.mu.Unlock()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearRepeat()
	none := c.op.single()
	c.publishOp(&none) // first, so that nobody sees the last owner's operation under the new one's name
	c.publishInfo(c.number)
	c.writeInfo(kindComm)
	return c
}

// release gives a slot back.
func (w *Writer) release(index int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, index)
}

// store writes a record at its reserved index: the marker last, with the meaning of a release.
func (g *ring) store(index uint64, kind uint8, r *[recordWords]uint64) {
	to := (*[recordWords]uint64)(g.words[(index&g.mask)*recordWords:])
	to[1], to[2], to[3], to[4], to[5], to[6], to[7] = r[1], r[2], r[3], r[4], r[5], r[6], r[7]
	atomic.StoreUint64(&to[recMarker], marker(index, kind, foldRecord(index, r)))
}

// putLife writes a record of the life ring and its tail in one piece, and wakes who follows.
func (m *mapping) putLife(kind uint8, r *[recordWords]uint64, tail []byte) {
	more := (len(tail) + tailPerRecord - 1) / tailPerRecord
	// Before the index is reserved: so no operation that comes after a later record of this ring can be below it; see cursor.
	r[recLifeOpHead] = atomic.LoadUint64(m.opRing.head)
	first := atomic.AddUint64(m.lifeRing.head, uint64(1+more)) - uint64(1+more)
	for i := range more {
		var c [recordWords]uint64
		getWords(c[1:], tail[i*tailPerRecord:])
		m.lifeRing.store(first+1+uint64(i), kindContinue, &c)
	}
	m.lifeRing.store(first, kind, r)
	m.ringBell()
}

// ringBell wakes the followers that sleep. The store of what they shall see comes before; together with the follower's order (waiting
// first, then a last look) none sleeps over it.
func (m *mapping) ringBell() {
	atomic.AddUint32(m.bell, 1)
	m.wakeWaiting()
}

// wakeWaiting is the other half of ringBell. A follower that was awake in between has seen the new bell, and takes it that it is announced
// still: the bell goes up once more, so that it doesn't go to sleep on that.
func (m *mapping) wakeWaiting() {
	if atomic.LoadUint32(m.waiting) != 0 && atomic.SwapUint32(m.waiting, 0) != 0 {
		atomic.AddUint32(m.bell, 1)
		_ = futexWake(m.bell)
	}
}

// refreshEvery is how old the header's pair of clocks may become before a record of the life ring refreshes it: the time of day is
// stepped by people and by NTP, CLOCK_MONOTONIC is not.
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

// bothClocks reads both clocks at one moment, as well as it can: within how long is the time from the first reading to the last. Who is
// preempted between them tries again.
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

// clockSet is how far the time of day must be off for the header's pair to be replaced. Reading two clocks one after the other takes a while,
// and a new pair for each look would give one moment a different time of day in everything that is told of it.
const clockSet = int64(time.Millisecond)

// pairClocks publishes one moment on both clocks, unless the published pair still tells it, as far as can be seen from readings that are within
// so long. The caller holds w.clock.
func (w *Writer) pairClocks(mono, wall, within int64) {
	i := hdrClock / wordSize
	copies := w.header[i+1 : i+1+2*2]
	if control := w.header[i]; control != 0 {
		if now, ok := latched(control, copies, 2); ok {
			if off := wall - mono - int64(now[1]-now[0]); -clockSet-within < off && off < clockSet+within {
				return
			}
		}
	}
	pair := [2]uint64{uint64(mono), uint64(wall)}
	publish(&w.header[i], copies, pair[:])
}

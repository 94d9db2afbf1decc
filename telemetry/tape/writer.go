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
	"github.com/carillon-rt/carillon/telemetry/process/futex"
	"github.com/carillon-rt/carillon/telemetry/tape/internal/hole"
)

// Writer is one process's tape. It is safe for concurrent use. A nil *Writer is the tape switched off: every method
// is a no-op.
//
// If the file loses its pages while it is written, because somebody truncates it or its disk fails, the Writer goes on
// without effect, and readers find that the tape was cut short.
type Writer struct {
	path   string
	length int64
	*mapping

	mu     sync.Mutex
	free   []int                 // unused slots of the table, in order
	idle   map[tallyKey][]*tally // tallies without a communicator
	number uint32                // of the last communicator
	closed bool

	every uint64 // 1 in every operations is sampled; 0: none
	slow  int64  // ns from which an operation is slow

	clock          sync.Mutex // orders the refreshing of the header's clock
	clockRefreshed atomic.Int64
}

// mapping is the mapped file. It is unmapped when nothing refers to it: a communicator may write after Close.
type mapping struct {
	*changing
	slots            []slot
	tallies          []tally
	lifeRing, opRing ring
	ordinary         []page        // the ordinary ring
	written          []atomic.Bool // for each of its pages: whether a communicator writes it
	marked           []marked
	devices          []DevicePage
}

// ring is a ring of records in the mapping.
type ring struct {
	head    *uint64
	records []record
	mask    uint64
}

// Create makes the tape of this process: Dir/Job/Host-PID.tape, readable and writable by this user alone. It reserves
// the whole file, so that writing can't fail later. A second tape of one process gets a number in its name. The tape of
// an earlier process with the same name is renamed to end in .old.tape. The error says how to fix it; the program can
// go on with a nil Writer.
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
	if g.marked > 0 {
		m.marked = part[marked](mem, g.marksOffset(), g.marked)
	}
	if g.devices > 0 {
		m.devices = part[DevicePage](mem, g.deviceOffset(), g.devices)
	}
	runtime.AddCleanup(m, func(mem []byte) {
		region.Release()
		_ = unix.Munmap(mem)
	}, mem)
	return m, nil
}

// part returns n parts of the mapping, from an offset on.
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

// Close marks the tape as closed, so that readers see a regular end and not a death. The file stays; see SweepJobs.
// Closing again does nothing.
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

// Exported sets Header.Exported. The last call counts.
func (w *Writer) Exported(until int64) { atomic.StoreInt64(&w.head().exported, until) }

// Delivered sets Header.Delivered. The last call counts.
func (w *Writer) Delivered(until int64) { atomic.StoreInt64(&w.head().delivered, until) }

// Terminated sets Header.Terminated: when, by Now, the process was asked from outside to end. The last call counts.
func (w *Writer) Terminated(at int64) { atomic.StoreInt64(&w.head().terminated, at) }

// Saw sets Header.Seen. It is a single store, for frequent calls. The last call counts.
func (w *Writer) Saw(at int64) { atomic.StoreInt64(&w.head().seen, at) }

// Resumed sets Header.Paused, Header.Resumed and Header.Starved: the process didn't run from paused until since, by
// Now, and its threads waited for a processor for the time starved meanwhile. The last call counts.
func (w *Writer) Resumed(paused, since int64, starved time.Duration) {
	atomic.StoreInt64(&w.head().starved, int64(starved))
	atomic.StoreInt64(&w.head().paused, paused)
	atomic.StoreInt64(&w.head().resumed, since)
}

// Exporter sets Header.Exporter.
func (w *Writer) Exporter(number uint64) { atomic.StoreUint64(&w.head().exporter, number) }

// Run sets Header.Run.
func (w *Writer) Run(run lifecycle.Run) { atomic.StoreUint64(&w.head().run, uint64(run)) }

// head returns the changing part of the header; for a nil Writer, memory that nobody reads.
func (w *Writer) head() *changing {
	if w == nil {
		return new(changing)
	}
	return w.changing
}

// Comm takes a slot of the in-flight table for a new communicator. If the table is full, the communicator is only in
// the rings, and Header.Overflow counts it. After Close it returns nil.
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
	if c.index >= 0 && c.index < len(w.marked) {
		c.messages.open(&w.marked[c.index], c.number)
	}
	c.show(&pending{}) // first, so that nobody sees the last owner's operation under the new name
	c.showInfo(c.number)
	c.writeInfo(kindComm)
	return c
}

// release gives a slot back. The free slots are in order, as the first ones have room for counts of messages.
func (w *Writer) release(index int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, _ := slices.BinarySearch(w.free, index)
	w.free = slices.Insert(w.free, at, index)
}

// reserve reserves n records, and returns the index of the first.
func (g *ring) reserve(n uint64) (first uint64) { return atomic.AddUint64(g.head, n) - n }

// at returns the place of a record.
func (g *ring) at(index uint64) *record { return &g.records[index&g.mask] }

// wakeAtQuarter wakes followers if the n op records from first on complete a quarter of the ring, so that followers
// miss none.
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

// ringBell wakes sleeping followers. Follower.sleep explains why no follower misses earlier stores.
func (m *mapping) ringBell() {
	atomic.AddUint32(&m.bell, 1)
	m.wakeWaiting()
}

// wakeWaiting is the second half of ringBell. A follower that woke up in between has seen the new bell value, and would
// sleep without announcing itself again. So wakeWaiting increments the bell once more, and the follower's wait returns.
func (m *mapping) wakeWaiting() {
	if atomic.LoadUint32(&m.waiting) != 0 && atomic.SwapUint32(&m.waiting, 0) != 0 {
		atomic.AddUint32(&m.bell, 1)
		_ = futex.Wake(&m.bell, futex.All)
	}
}

func wallNow() int64 { return time.Now().UnixNano() }

// refreshEvery is the greatest age of the header's pair of clocks: the time of day may be set, CLOCK_MONOTONIC is not.
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

// clockSet is how far the time of day must be off before the header's pair is replaced: with a new pair at each
// refresh, one moment would be shown with many times of day.
const clockSet = int64(time.Millisecond)

// pairClocks publishes a reading of both clocks, taken within so many ns, unless the published pair still fits it. The
// caller holds w.clock.
func (w *Writer) pairClocks(mono, wall, within int64) {
	version, pair, ok := w.changing.clock.current()
	if ok && version != 0 {
		if off := wall - mono - (pair.wall - pair.mono); -clockSet-within < off && off < clockSet+within {
			return
		}
	}
	w.changing.clock.publish(clockPair{mono, wall})
}

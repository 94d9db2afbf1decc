package tape

import (
	"errors"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Tally counts the operations of one kind that ended well: those of communicators of one name and engine, with one
// call and one class of sizes. It never goes down: the next communicator of the name continues it. Ranks of one process
// have a tally each. An operation that ends while the tally is read may be in some counters and not in others.
type Tally struct {
	Index        int // in the tape; a tally keeps it
	Name, Engine string
	Call         lifecycle.Call
	SizeClass    uint8 // see SizeClass

	Bytes uint64 // of the operations' buffers
	// Ordinary counts the operations that never waited and were not slow, and OrdinaryTime is their total duration;
	// Time is that of all operations.
	Ordinary           uint64
	OrdinaryTime, Time time.Duration
	sampled            uint64 // ordinary operations that are on the op ring
	// Durations[i] counts the operations that took up to DurationBound(i), and longer than the bound before. The last
	// one counts those longer than all bounds.
	Durations [DurationBuckets]uint64
	// Bandwidth is the sum of all bus bandwidths in bytes per second; Bandwidths[i] counts operations of up to
	// BandwidthBound(i). Operations without a bus bandwidth (see Signature.BusFactor) are in neither, nor are those of
	// communicators that enqueue (see CommInfo.Enqueues), whose durations are not those of moving bytes.
	Bandwidth  float64
	Bandwidths [BandwidthBuckets]uint64
}

// Count is how many operations there were.
func (t *Tally) Count() (n uint64) {
	for _, d := range t.Durations {
		n += d
	}
	return n
}

// Add adds u's counters to t's. Bytes and times stop at the most that they can hold.
func (t *Tally) Add(u *Tally) {
	t.Bytes += min(u.Bytes, math.MaxUint64-t.Bytes)
	t.Ordinary += u.Ordinary
	t.OrdinaryTime += min(u.OrdinaryTime, math.MaxInt64-t.OrdinaryTime)
	t.Time += min(u.Time, math.MaxInt64-t.Time)
	for i, n := range u.Durations {
		t.Durations[i] += n
	}
	t.Bandwidth += u.Bandwidth
	for i, n := range u.Bandwidths {
		t.Bandwidths[i] += n
	}
}

// The numbers of a tally's buckets; the last bucket of each kind has no bound.
const (
	DurationBuckets  = 14
	BandwidthBuckets = 12
	SizeClasses      = 33
)

// DurationBound is the upper bound of the first buckets of durations: 1 µs, then 4 times the bound before. i is less
// than DurationBuckets-1.
func DurationBound(i int) time.Duration { return time.Microsecond << (2 * i) }

// BandwidthBound is the upper bound of the first buckets of bus bandwidths, in bytes per second: 1 MB/s, then 4 times
// the bound before. i is less than BandwidthBuckets-1.
func BandwidthBound(i int) float64 { return float64(uint64(1e6) << (2 * i)) }

// SizeClass is the class of an operation's size: the least c with bytes <= 4^c.
func SizeClass(bytes uint64) uint8 {
	if bytes <= 1 {
		return 0
	}
	return uint8(bits.Len64(bytes-1)+1) / 2
}

// DurationBucket is the bucket of a duration, which isn't negative: the class of its microseconds.
func DurationBucket(d time.Duration) int {
	return min(int(SizeClass((uint64(d)+999)/1000)), DurationBuckets-1)
}

// BandwidthBucket is the bucket of a bus bandwidth in bytes per second, which is positive.
func BandwidthBucket(bw float64) int { return bandwidthBucket(bw / 1e6) }

// bandwidthBucket is the least i with mbs <= 4^i. It takes the exponent of the next lower number, so that a power of 4
// is in its own bucket.
func bandwidthBucket(mbs float64) int {
	exponent := int((math.Float64bits(mbs)-1)>>52) - 1023
	return min(max((exponent+2)>>1, 0), BandwidthBuckets-1)
}

// tallyKey identifies the operations that a tally counts.
type tallyKey struct {
	name, engine string
	call         lifecycle.Call
	class        uint8
}

// heldTally is a tally that one communicator writes until it gives the tally back.
type heldTally struct {
	key   tallyKey
	tally *tally // nil: there was no room for one
}

// counting caches the tally of the communicator's last operation: most are like the one before.
type counting struct {
	tally *tally // nil: none
	kinds uint64 // this and the next two are as in pending
	bytes uint64
	peer  int32
	paged bool    // the last record on the communicator's page is of this kind of operation
	cross float64 // bytes that cross a rank's link, times 1000: divided by ns, it is MB/s
}

// countInTally counts an operation that ended, if it has a tally, and returns the kind of the record of its end. The
// goroutine that writes the communicator's operations is the only writer of the tally; each word is stored by itself.
func (c *CommWriter) countInTally(p *pending, took int64, code lifecycle.Code) (kind uint8) {
	if code != lifecycle.CodeOK || took < 0 {
		return kindOp
	}
	t := &c.tally
	if t.kinds != p.kinds || t.bytes != p.bytes || t.peer != p.peer {
		c.countAs(p)
	}
	to := t.tally
	if to == nil {
		return kindOp
	}
	if !p.told && took < c.w.slow {
		kind = kindOrdinary
		to.ordinary++
		to.ordinaryTime += uint64(took)
	} else {
		kind = kindTallied
		to.otherTime += uint64(took)
	}
	to.bytes += t.bytes
	to.durations[DurationBucket(time.Duration(took))]++
	if t.cross > 0 && took > 0 {
		mbs := t.cross / float64(took)
		to.bandwidth += mbs
		to.bandwidths[bandwidthBucket(mbs)]++
	}
	return kind
}

// countAs makes c.tally the one for operations such as p; it stays without a tally if there is no room.
func (c *CommWriter) countAs(p *pending) {
	c.tally = counting{kinds: p.kinds, bytes: p.bytes, peer: p.peer}
	if !p.call().IsOperation() || c.closed {
		return
	}
	if sig := (Signature{Call: p.call(), Peer: p.peer}); !c.info.Enqueues() {
		c.tally.cross = sig.BusFactor(c.info.Rank, c.info.Size) * float64(p.bytes) * 1e3
	}
	key := tallyKey{c.info.Name, c.info.Engine, p.call(), SizeClass(p.bytes)}
	for i := range c.tallies {
		if h := &c.tallies[i]; h.key.call == key.call && h.key.class == key.class {
			c.tally.tally = h.tally
			return
		}
	}
	h := heldTally{key, c.w.takeTally(key)}
	c.tallies = append(c.tallies, h) // also if there is no tally
	c.tally.tally = h.tally
}

// giveTallies returns the communicator's tallies, so that the next communicator of its name continues them.
func (c *CommWriter) giveTallies() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for _, h := range c.tallies {
		if h.tally != nil {
			c.w.idle[h.key] = append(c.w.idle[h.key], h.tally)
		}
	}
	c.tally, c.tallies = counting{}, nil
}

// takeTally returns a tally for key that no communicator writes, or begins a new one; nil if there is no room.
func (w *Writer) takeTally(key tallyKey) *tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	if idle := w.idle[key]; len(idle) > 0 {
		w.idle[key] = idle[:len(idle)-1]
		return idle[len(idle)-1]
	}
	used := w.tallyHead
	if used >= uint64(len(w.tallies)) {
		return nil
	}
	next := &w.tallies[used]
	next.call, next.sizeClass = uint8(key.call), key.class
	putText(next.name[:], key.name)
	putText(next.engine[:], key.engine)
	next.check = check(used, wordsOf(&next.tallied))
	atomic.StoreUint64(&w.tallyHead, used+1)
	return next
}

// AppendTallies appends the tape's tallies. Corrupt ones are left out; the error has a *FormatError for each.
func (t *Reader) AppendTallies(tallies []Tally) ([]Tally, error) {
	now, err := t.readChanging()
	if err != nil {
		return tallies, err
	}
	if now.tallyHead > uint64(t.geo.tallies) {
		return tallies, t.malformed("claims %d tallies, and has room for %d", now.tallyHead, t.geo.tallies)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make([]tally, tallyBatch)
	}
	var errs []error
	for from, used := 0, int(now.tallyHead); from < used; from += tallyBatch {
		counts := t.counts[:min(tallyBatch, used-from)]
		if err := t.readAt(bytesOf(counts), t.geo.tallyOffset()+int64(from)*tallySize); err != nil {
			return tallies, errors.Join(append(errs, err)...)
		}
		for i := range counts {
			index, w := from+i, &counts[i]
			if w.check != check(uint64(index), wordsOf(&w.tallied)) {
				errs = append(errs, t.malformed("has a corrupt tally %d: its check doesn't fit", index))
				continue
			}
			tallies = append(tallies, Tally{
				Index: index, Name: t.texts.read(w.name[:]), Engine: t.texts.read(w.engine[:]),
				Call: lifecycle.Call(w.call), SizeClass: w.sizeClass,
				Bytes: w.bytes, Ordinary: w.ordinary, OrdinaryTime: time.Duration(w.ordinaryTime), sampled: w.sampled,
				Time:      time.Duration(w.ordinaryTime + w.otherTime),
				Durations: w.durations, Bandwidth: w.bandwidth * 1e6, Bandwidths: w.bandwidths,
			})
		}
	}
	return tallies, errors.Join(errs...)
}

// tallyBatch is how many tallies are read at a time.
const tallyBatch = 16

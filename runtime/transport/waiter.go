package transport

import (
	"context"
	"iter"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/carillon-rt/carillon/telemetry/process/futex"
)

// The values of a doorbell word. A ringer sets it to awake; it wakes the sleeper if, and only if, it found the word
// armed.
const (
	awake uint32 = iota
	armed
)

// Bounds of one sleep on a word in shared memory. The sleep doubles from the first to the last. A sleeper notices the
// end of its context after lastSleep at most.
const (
	firstSleep = time.Millisecond
	lastSleep  = 50 * time.Millisecond
)

// Patience says how long a Waiter looks for work before it sleeps. The phases follow each other.
type Patience struct {
	Spin  time.Duration // pass over the connections back to back
	Yield time.Duration // yield the processor after each pass
	// CPU: yields go to other processes, too, not only to goroutines of this process.
	CPU bool
	// Poll: before each look, the rank receives from the network itself, see Waiter.Poll.
	Poll bool
}

// PatienceFor returns the patience for a rank when hostRanks ranks of its communicator share this host, processRanks of
// them are in this process, and remote says whether it reaches some peers through the network.
//
// A rank looks for several times the time that it takes to wake all others: otherwise ranks that once slept would fall
// asleep again while the first of them wakes the others. It spins if every rank can have a core to itself. If ranks
// outnumber cores, a spinning rank would occupy the very core that its peer needs, so it yields at once.
//
// With remote peers, the goroutines that read from the network need a core as well, and the kernel may have queued
// their thread on the core on which the rank looks. So the rank yields its core between two looks, which costs little
// if nothing else wants the core. It sleeps at once if the ranks of this process occupy every P of Go's scheduler, as
// another thread must run those goroutines. If every rank can have a core to itself, the rank polls the network instead
// of waiting for them to wake.
func PatienceFor(hostRanks, processRanks int, remote bool) Patience {
	look := min(time.Duration(hostRanks)*lookPerRank, longestLook)
	processes := hostRanks > processRanks
	switch {
	case remote && processRanks >= runtime.GOMAXPROCS(0):
		return Patience{}
	case remote:
		return Patience{Yield: look, CPU: true, Poll: hostRanks <= runtime.NumCPU()}
	case hostRanks <= runtime.NumCPU() && processRanks <= runtime.GOMAXPROCS(0):
		return Patience{Spin: look, Yield: 100 * time.Microsecond, CPU: processes}
	case processes:
		return Patience{Yield: look, CPU: true}
	default: // waking goroutines is fast
		return Patience{Yield: 200 * time.Microsecond}
	}
}

const (
	lookPerRank = 400 * time.Microsecond
	longestLook = 10 * time.Millisecond
)

// How a spinning Waiter adapts to a contended core. A rank that lost its core while it looked for work had better
// sleep: the kernel gives the core at once to a rank that wakes up, and late to one that has just used it.
const (
	lostCore    = 100 * time.Microsecond // between two readings of the clock: another thread ran
	crowdedFor  = 32                     // number of waits that are short after that
	mostCrowded = 256                    // upper bound of that number
	crowdedSpin = 5 * time.Microsecond   // how long these waits spin
)

// goschedEvery is the number of yields to other processes after which the Waiter also yields to goroutines of this one.
const goschedEvery = 32

// clockEvery is the number of passes between a spinning Waiter's readings of the clock; a power of two.
const clockEvery = 32

// firstLooks is the number of looks that take about a microsecond.
const firstLooks = 1000

// Clock returns the time since a moment shortly before program start; it is never 0. It costs half of time.Now, which
// also reads the time of day. Every reading takes about a per cent of a small operation.
func Clock() time.Duration { return time.Since(epoch) }

var epoch = time.Now().Add(-time.Second)

// Waiter is where one rank waits for its connections in one communicator. All of them ring it.
//
// Idle and Active may only be called by the goroutine that drives the connections; the other methods from any
// goroutine.
//
// Invariant: a ringer first publishes the rank's new work and then loads the word; the waiter first stores armed and
// then looks for work once more before it sleeps. All these operations are sequentially consistent, so at least one of
// the two sees the other.
type Waiter struct {
	idle     uint          // number of calls of Idle since the last Active
	mask     uint          // the clock is read when idle&mask is 0
	since    time.Duration // Clock at its first reading since then; 0 if not read
	began    time.Duration // see Began; 0 once used
	looked   time.Duration // time from since to the last reading
	crowded  int           // number of waits for which the core counts as contended
	patience Patience
	word     *atomic.Uint32
	wake     chan struct{} // holds one wake-up; nil when the word is in shared memory
	armed    bool          // this side's view of the word
	first    time.Duration // firstSleep
	last     time.Duration // lastSleep
	sleep    time.Duration // the previous sleep
	resting  []func()
	poll     func() bool    // see Poll
	attend   func() bool    // see Attend
	at       *atomic.Uint32 // 1 between Enter and Leave
	round    uint64         // see Together

	// causes has the first cause of each peer's loss, by peer. order lists the lost peers, plus 1, in the order of
	// their loss; an entry is 0 until it is set.
	causes []atomic.Pointer[error]
	order  []atomic.Int32
	lost   atomic.Int32 // number of lost peers

	// The word of a Waiter that parks a goroutine. Ringers read it all the time, so it is on other cache lines than
	// what Idle writes.
	_   [128]byte
	own atomic.Uint32
	_   [128]byte
}

// NewWaiter makes a Waiter for a communicator of the given size that sleeps by parking its goroutine. All ringers must
// be in this process.
func NewWaiter(size int, p Patience) *Waiter {
	w := &Waiter{
		patience: p, wake: make(chan struct{}, 1),
		causes: make([]atomic.Pointer[error], size), order: make([]atomic.Int32, size),
	}
	w.word, w.mask = &w.own, w.spinMask()
	return w
}

// NewSharedWaiter makes a Waiter that sleeps in the kernel on word, which is in memory shared with other processes.
// Those ring it with RingWord. The word must stay mapped as long as the Waiter and its connections are used.
func NewSharedWaiter(size int, word *atomic.Uint32, p Patience) *Waiter {
	w := &Waiter{
		patience: p, word: word, first: firstSleep, last: lastSleep,
		causes: make([]atomic.Pointer[error], size), order: make([]atomic.Int32, size),
	}
	w.mask = w.spinMask()
	return w
}

// OnRest registers rest to be called before each sleep: a connection's last window is no longer read then. It must be
// called before the first Idle.
func (w *Waiter) OnRest(rest func()) { w.resting = append(w.resting, rest) }

// Poll makes the Waiter itself look for work for which another goroutine would otherwise ring it, if its Patience says
// so. poll is called at each Idle, does not wait, and reports whether it found any. Only the goroutine that calls Idle
// may call Poll.
func (w *Waiter) Poll(poll func() (moved bool)) {
	if w.patience.Poll {
		w.poll = poll
	}
}

// Attend makes the Waiter do other work while its rank is in an operation. attend is called at each Idle, and reports
// whether it moved something. word, which others see, is 1 between Enter and Leave; Leave calls attend once more. So
// whatever is published before word is seen to be 1 is attended to, if the Waiter is rung. Attend must be called before
// the first Idle.
func (w *Waiter) Attend(word *atomic.Uint32, attend func() (moved bool)) {
	w.at, w.attend = word, attend
}

// Attends reports whether the rank is in an operation, in which case the Waiter will call Attend's function before the
// rank waits or leaves the operation. Only the goroutine that calls Idle may call it.
func (w *Waiter) Attends() bool { return w.at != nil && w.at.Load() == 1 }

// Enter and Leave mark the begin and the end of an operation in which the rank calls Idle whenever it waits. Only the
// goroutine that calls Idle may call them.
func (w *Waiter) Enter() {
	if w.attend != nil {
		w.at.Store(1)
	}
}

// Together says, between Enter and Leave, that in this operation every rank sends to every other rank at once, and that
// no rank is done before all data has arrived. The ranks agree on the number, which grows and is not 0.
func (w *Waiter) Together(round uint64) { w.round = round }

// Round returns the number that Together was given in this operation, or 0 if none, also while Leave calls Attend's
// function.
func (w *Waiter) Round() uint64 { return w.round }

// Leave ends what Enter began.
func (w *Waiter) Leave() {
	w.Active()
	if w.attend != nil {
		w.at.Store(0)
		w.attend()
	}
	w.round = 0
}

// Looks returns how often it is worthwhile to look at one memory location before the first Idle.
func (w *Waiter) Looks() int {
	if w.patience.Spin > 0 {
		return firstLooks
	}
	return 1
}

// Saw records that the rank found what it waited for within Looks looks: a short wait.
func (w *Waiter) Saw() {
	if w.crowded > 0 {
		w.crowded--
	}
}

// Active records that the last pass over the connections made progress.
func (w *Waiter) Active() {
	if w.idle != 0 {
		w.revive()
	}
}

func (w *Waiter) revive() {
	w.idle, w.mask, w.since, w.sleep = 0, w.spinMask(), 0, 0
	if w.crowded > 0 {
		w.crowded--
	}
	if w.armed {
		w.armed = false
		w.word.Store(awake)
	}
}

// Idle records that the last pass over the connections made no progress, and returns when it is worthwhile to make
// another one: at once while patience lasts, later after a Ring or a bounded sleep. It returns ctx's error when ctx has
// ended, at the latest 50 ms after that. It does not allocate.
func (w *Waiter) Idle(ctx context.Context) error {
	w.idle++
	if w.poll != nil && w.poll() || w.attend != nil && w.attend() || w.idle&w.mask != 0 {
		return nil
	}
	return w.wait(ctx)
}

// spinMask returns the mask of a Waiter that has just become idle.
func (w *Waiter) spinMask() uint {
	if w.patience.Spin > 0 {
		return clockEvery - 1
	}
	return 0
}

func (w *Waiter) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		w.revive()
		return err
	}
	if !w.patient() {
		return w.doze(ctx)
	}
	return nil
}

// patient reports whether to make another pass right away. It may yield the processor first.
func (w *Waiter) patient() bool {
	waited := w.waited()
	if w.patience.Spin > 0 && waited-w.looked > lostCore {
		w.crowded = min(w.crowded+crowdedFor, mostCrowded)
	}
	w.looked = waited
	spin, yield := w.patience.Spin, w.patience.Yield
	if w.crowded > 0 {
		spin, yield = min(spin, crowdedSpin), 0
	}
	switch {
	case waited < spin:
		return true
	case waited < spin+yield:
		w.mask = 0 // from here on, read the clock after each pass
		if !w.patience.CPU {
			runtime.Gosched()
			return true
		}
		// The work comes from another process, or from a goroutine on another of Go's Ps. Go's scheduler gets a turn
		// only now and then: it wakes an idle thread to look for more work, and that thread would spin on the very core
		// that the other one needs.
		if w.idle%goschedEvery == 0 {
			runtime.Gosched()
		}
		yieldCPU()
		return true
	default:
		w.mask = 0
		return false
	}
}

// waited returns how long the Waiter has been looking.
func (w *Waiter) waited() time.Duration {
	if w.since != 0 {
		return Clock() - w.since
	}
	w.looked = 0
	if w.since, w.began = w.began, 0; w.since == 0 {
		w.since = Clock()
	}
	return 0
}

// Began tells the Waiter when its next wait began, by Clock, or 0 if not known: this saves its first reading of the
// clock. Only the goroutine that calls Idle may call it.
func (w *Waiter) Began(at time.Duration) { w.began = at }

// doze arms the word at its first call, and sleeps at the second.
func (w *Waiter) doze(ctx context.Context) error {
	if !w.armed {
		// The caller must look once more: what was published before may have rung the word while it was awake.
		w.armed = true
		w.word.Store(armed)
		return nil
	}
	for _, rest := range w.resting {
		rest()
	}
	if w.wake != nil {
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	} else {
		w.sleep = min(max(2*w.sleep, w.first), w.last)
		// The result does not matter: the word is checked in any case.
		_ = futex.Wait((*uint32)(unsafe.Pointer(w.word)), armed, w.sleep)
	}
	if w.word.Load() != armed {
		w.armed = false
		w.sleep = 0
	}
	w.looked = Clock() - w.since // the sleep is not a lost core
	return nil
}

// Ring wakes the waiter, now or at its next Idle. It never blocks, makes no system call unless the waiter sleeps, and
// does not allocate.
func (w *Waiter) Ring() {
	if w.wake == nil {
		RingWord(w.word)
	} else if w.word.Load() == armed && w.word.CompareAndSwap(armed, awake) {
		select {
		case w.wake <- struct{}{}:
		default: // a wake-up is already pending
		}
	}
}

// RingWord rings the NewSharedWaiter of another process through its word.
func RingWord(word *atomic.Uint32) {
	if word.Load() == armed && word.CompareAndSwap(armed, awake) {
		_ = futex.Wake((*uint32)(unsafe.Pointer(word)), 1)
	}
}

// PeerLost records that the connection to peer is lost, and why. Only the first cause per peer is kept. It rings.
func (w *Waiter) PeerLost(peer int, err error) {
	if w.causes[peer].CompareAndSwap(nil, &err) {
		w.order[w.lost.Add(1)-1].Store(int32(peer) + 1)
	}
	w.Ring()
}

// Lost returns why peer was lost, or nil.
func (w *Waiter) Lost(peer int) error {
	if w.lost.Load() == 0 {
		return nil
	}
	if err := w.causes[peer].Load(); err != nil {
		return *err
	}
	return nil
}

// Losses yields the lost peers and the causes, in the order of the losses. It ends before a loss that is still being
// recorded; that one rings.
func (w *Waiter) Losses() iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range w.order[:w.lost.Load()] {
			peer := int(w.order[i].Load()) - 1
			if peer < 0 || !yield(peer, *w.causes[peer].Load()) {
				return
			}
		}
	}
}

// FirstLost returns the first peer that was lost, and why; -1 and nil if none was.
func (w *Waiter) FirstLost() (peer int, err error) {
	if peer = int(w.order[0].Load()) - 1; peer < 0 {
		return -1, nil
	}
	return peer, w.Lost(peer)
}

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

// The values of a doorbell word. A ringer makes it awake and wakes the sleeper if, and only if, it found it armed.
const (
	awake uint32 = iota
	armed
)

// Bounds of one sleep on a word in shared memory, which doubles from the first to the last. The end of a context is
// seen after at most the last.
const (
	firstSleep = time.Millisecond
	lastSleep  = 50 * time.Millisecond
)

// Patience says how long a Waiter looks before it sleeps. The times follow each other.
type Patience struct {
	Spin  time.Duration // passes over the connections back to back
	Yield time.Duration // passes after each of which the processor is offered to others
	// CPU: yields offer the processor to other processes, too, not only to goroutines of this one.
	CPU bool
	// Poll: before each look the rank receives from the network itself, see Waiter.Poll.
	Poll bool
}

// PatienceFor is the patience that suits a rank when hostRanks ranks of its communicator share this host, of which
// processRanks are in this process, and remote says whether it has peers that it reaches through the network.
//
// A rank of many looks for several times what it takes to wake all others: if it looked for less, ranks that once slept
// would fall asleep again while the first of them wakes the others. It spins where every rank can have a core to
// itself. Where ranks outnumber cores, a spinning rank would keep the very core that its peer needs, so it yields at
// once.
//
// With remote peers, the goroutines that read from the network need a core as well, and the kernel may have queued
// their thread on the core on which the rank looks. So the rank offers its core between two looks, which costs little
// if nobody wants it. It sleeps at once if the ranks of this process occupy every processor of Go's scheduler, as
// another one must run those goroutines. Where every rank can have a core to itself, it does not wait for them to wake.
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
	default: // goroutines are woken fast
		return Patience{Yield: 200 * time.Microsecond}
	}
}

const (
	lookPerRank = 400 * time.Microsecond
	longestLook = 10 * time.Millisecond
)

// How a spinning Waiter adapts to a core that others want, too. A rank that is found to have lost its core while it
// looked for work is better off asleep: the kernel gives the core at once to a rank that wakes up, and late to one
// that has just used it.
const (
	lostCore    = 100 * time.Microsecond // between two looks at the clock: somebody else ran
	crowdedFor  = 32                     // more waits that are short after that
	mostCrowded = 256                    // at most so many
	crowdedSpin = 5 * time.Microsecond   // how long they spin
)

// goschedEvery is after how many offers of the core to other processes other goroutines of this one are offered it,
// too.
const goschedEvery = 32

// clockEvery is after how many passes a spinning Waiter looks at the clock; a power of two.
const clockEvery = 32

// firstLooks is about a microsecond.
const firstLooks = 1000

// Clock is the time since a moment before the program's first look at it, and never 0. It costs half of time.Now, which
// reads the time of day, too: of a small operation, every reading is a per cent.
func Clock() time.Duration { return time.Since(epoch) }

var epoch = time.Now().Add(-time.Second)

// Waiter is where one rank waits for its connections in one communicator. All of them ring it.
//
// Idle and Active belong to the goroutine that drives the connections; the other methods may be called by any.
//
// Invariant: a ringer, which makes the rank's work possible, first publishes it and then loads the word; the waiter
// first stores armed and then looks for work once more before it sleeps. All of these are sequentially consistent, so
// at least one of the two sees the other.
type Waiter struct {
	idle     uint          // calls of Idle since the last Active
	mask     uint          // the clock is looked at when idle&mask is 0
	since    time.Duration // Clock at the first look at it since then; 0: there was none
	began    time.Duration // see Began; 0 when it has been used
	looked   time.Duration // from since to the last look
	crowded  int           // waits for which the core counts as contended
	patience Patience
	word     *atomic.Uint32
	wake     chan struct{} // holds one wake-up; nil when the word is in shared memory
	armed    bool          // this side's view of the word
	first    time.Duration // firstSleep
	last     time.Duration // lastSleep
	sleep    time.Duration // the one before
	resting  []func()
	poll     func() bool    // see Poll
	attend   func() bool    // see Attend
	at       *atomic.Uint32 // 1 as long as it is attended to
	round    uint64         // see Together

	// By peer, the first cause for which it was lost; and the peers that were lost, plus 1, in the order of time. An
	// entry is 0 until it is set.
	causes []atomic.Pointer[error]
	order  []atomic.Int32
	lost   atomic.Int32 // how many

	// The word of a Waiter that parks a goroutine. Ringers read it all the time, so it lies off what Idle writes.
	_   [128]byte
	own atomic.Uint32
	_   [128]byte
}

// NewWaiter makes a Waiter for a communicator of the given size that sleeps by parking its goroutine. All that ring
// it must be in this process.
func NewWaiter(size int, p Patience) *Waiter {
	w := &Waiter{
		patience: p, wake: make(chan struct{}, 1),
		causes: make([]atomic.Pointer[error], size), order: make([]atomic.Int32, size),
	}
	w.word, w.mask = &w.own, w.spinMask()
	return w
}

// NewSharedWaiter makes a Waiter that sleeps in the kernel on word, which lies in memory shared with other processes.
// Those ring it with RingWord. The word must stay mapped as long as the Waiter and its connections are used.
func NewSharedWaiter(size int, word *atomic.Uint32, p Patience) *Waiter {
	w := &Waiter{
		patience: p, word: word, first: firstSleep, last: lastSleep,
		causes: make([]atomic.Pointer[error], size), order: make([]atomic.Int32, size),
	}
	w.mask = w.spinMask()
	return w
}

// OnRest has rest called before each sleep: a connection's last window is not read any more. It must be called before
// the first Idle.
func (w *Waiter) OnRest(rest func()) { w.resting = append(w.resting, rest) }

// Poll has the Waiter look for something itself that another goroutine would ring it for, if its Patience says so: poll
// is called at each Idle, does not wait, and says whether there was anything. It belongs to the goroutine that calls
// Idle.
func (w *Waiter) Poll(poll func() (moved bool)) {
	if w.patience.Poll {
		w.poll = poll
	}
}

// Attend has the Waiter look after something else while its rank is in an operation. attend is called at each Idle, and
// says whether it moved something. word, which others see, is 1 between Enter and Leave, which calls attend once more:
// what was published before word was seen to be 1 is attended to, if the Waiter is rung. It must be called before the
// first Idle.
func (w *Waiter) Attend(word *atomic.Uint32, attend func() (moved bool)) {
	w.at, w.attend = word, attend
}

// Attends says whether the rank is in an operation, and the Waiter will look after what Attend says before the rank
// waits or leaves it. It belongs to the goroutine that calls Idle.
func (w *Waiter) Attends() bool { return w.at != nil && w.at.Load() == 1 }

// Enter and Leave say that the rank begins and ends an operation, in which it calls Idle whenever it waits. They belong
// to the goroutine that calls it.
func (w *Waiter) Enter() {
	if w.attend != nil {
		w.at.Store(1)
	}
}

// Together says, between Enter and Leave, that in this operation every rank sends to every other one at once, and that
// nobody is done before all has come. The ranks agree on the number, which grows and is not 0.
func (w *Waiter) Together(round uint64) { w.round = round }

// Round is what Together said in this operation, 0 if nothing, also when Leave calls what Attend says.
func (w *Waiter) Round() uint64 { return w.round }

// Leave is the end of what Enter began.
func (w *Waiter) Leave() {
	w.Active()
	if w.attend != nil {
		w.at.Store(0)
		w.attend()
	}
	w.round = 0
}

// Looks is how often it is worth while to look at one place of memory before the first Idle.
func (w *Waiter) Looks() int {
	if w.patience.Spin > 0 {
		return firstLooks
	}
	return 1
}

// Saw says that what was waited for came while the rank looked as Looks says: a wait that was short.
func (w *Waiter) Saw() {
	if w.crowded > 0 {
		w.crowded--
	}
}

// Active says that the last pass over the connections made progress.
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

// Idle says that the last pass over the connections made no progress, and returns when it is worth while to make
// another one: at once while patience lasts, later after a Ring or a bounded sleep. It returns ctx's error when ctx has
// ended, which it sees at the latest 50 ms after the end. It does not allocate.
func (w *Waiter) Idle(ctx context.Context) error {
	w.idle++
	if w.poll != nil && w.poll() || w.attend != nil && w.attend() || w.idle&w.mask != 0 {
		return nil
	}
	return w.wait(ctx)
}

// spinMask is the mask of a Waiter that has just become idle.
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

// patient says whether to make another pass right away, and may offer the processor to others before.
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
		w.mask = 0 // from here on, look at the clock after each pass
		if !w.patience.CPU {
			runtime.Gosched()
			return true
		}
		// What is waited for comes from another process, or from a goroutine on another of Go's processors. Go's
		// scheduler is offered a turn only now and then: it wakes an idle thread to look for more work, and that thread
		// would spin on the very core that the other needs.
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

// waited is for how long the Waiter has been looking.
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

// Began says when what is waited for next began, by Clock, 0 for not known: it saves the Waiter its first look at the
// clock. It belongs to the goroutine that calls Idle.
func (w *Waiter) Began(at time.Duration) { w.began = at }

// doze arms the word the first time, and sleeps the second.
func (w *Waiter) doze(ctx context.Context) error {
	if !w.armed {
		// The caller must look once more: what was published before may have rung an awake word.
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
		// The result does not matter: the word is looked at in any case.
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
		default: // a wake-up is already there
		}
	}
}

// RingWord rings the NewSharedWaiter of another process through its word.
func RingWord(word *atomic.Uint32) {
	if word.Load() == armed && word.CompareAndSwap(armed, awake) {
		_ = futex.Wake((*uint32)(unsafe.Pointer(word)), 1)
	}
}

// PeerLost says that the connection to peer is of no use any more, and why. The first cause per peer is kept. It rings.
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

// Losses are the peers that were lost, and why, in the order of time. It ends before one that is just being recorded,
// which rings.
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

// FirstLost returns the peer that was lost first, and why; -1 and nil when none was.
func (w *Waiter) FirstLost() (peer int, err error) {
	if peer = int(w.order[0].Load()) - 1; peer < 0 {
		return -1, nil
	}
	return peer, w.Lost(peer)
}

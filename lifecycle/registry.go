package lifecycle

import (
	"fmt"
	"sync"
)

// Handle names a Life by its place in a Registry. It is never valid again once its Life has retired, whatever has the
// place then. The zero Handle is never valid.
type Handle struct{ Slot, Generation uint32 }

// String is "slot.generation".
func (h Handle) String() string { return fmt.Sprintf("%d.%d", h.Slot, h.Generation) }

// rest is how many retired slots lie idle before the one idle longest is used again: so many communicators can come and
// go before a stale handle is no longer told which call ended its communicator. A slot at rest keeps its Life.
const rest = 256

// Registry holds the lives of one runtime. All methods may be called from any goroutine; none blocks for long.
type Registry struct {
	mu    sync.RWMutex
	slots []slot
	idle  []uint32 // slots of retired lives, the longest retired first
	live  int
}

// slot is a place for one life at a time. Invariant: life.handle.Generation == generation.
type slot struct {
	generation uint32 // of the life that is or was here last, from 1
	life       *Life
	retired    bool
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{} }

// Open begins the life of a communicator, in StateInitializing.
func (r *Registry) Open(info Info) *Life {
	life := &Life{registry: r, info: info}
	life.state.store(StateInitializing)

	r.mu.Lock()
	defer r.mu.Unlock()
	var i uint32
	if len(r.idle) > rest {
		i, r.idle = r.idle[0], r.idle[1:]
	} else {
		i = uint32(len(r.slots))
		r.slots = append(r.slots, slot{})
	}
	s := &r.slots[i]
	s.generation++
	s.life, s.retired = life, false
	life.handle = Handle{Slot: i, Generation: s.generation}
	r.live++
	return life
}

// Lookup finds the life that h names. For a stale handle the error is a *UsageError as a call on the dead communicator
// would get; it names the communicator and the call that ended it, unless that is long ago. For a handle that this
// registry never gave out, it is a *UsageError with CodeInvalidArgument.
func (r *Registry) Lookup(h Handle) (*Life, error) {
	r.mu.RLock()
	var s slot
	if int64(h.Slot) < int64(len(r.slots)) {
		s = r.slots[h.Slot]
	}
	r.mu.RUnlock()

	switch {
	case h.Generation == 0 || h.Generation > s.generation:
		return nil, invalid("the handle %v is of no communicator of this runtime", h)
	case h.Generation < s.generation:
		return nil, &UsageError{
			Code:   CodeDestroyed,
			State:  StateDestroyed,
			Detail: fmt.Sprintf("the handle %v is of a communicator that ended long ago; use handles of live ones", h),
		}
	case s.retired:
		return nil, s.life.retired()
	default:
		return s.life, nil
	}
}

// Live lists the lives that have not retired, in the order of their slots. The caller owns the slice.
func (r *Registry) Live() []*Life {
	r.mu.RLock()
	defer r.mu.RUnlock()
	lives := make([]*Life, 0, r.live)
	for i := range r.slots {
		if !r.slots[i].retired {
			lives = append(lives, r.slots[i].life)
		}
	}
	return lives
}

// Len is how many lives have not retired.
func (r *Registry) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.live
}

// release lets h's slot rest. It is false if h's life is not there any more.
func (r *Registry) release(h Handle) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[h.Slot]
	if s.generation != h.Generation || s.retired {
		return false
	}
	s.retired = true
	r.idle = append(r.idle, h.Slot)
	r.live--
	return true
}

package lifecycle

import (
	"fmt"
	"sync"
)

// Handle identifies a Life in its Registry, by a number that is never reused: the handle of a communicator that has
// ended never means another one. The zero Handle is never valid.
type Handle uint64

// remembered is how many retired lives a registry keeps, so that the error for a stale handle can name the call that
// ended its communicator.
const remembered = 256

// Registry holds the lives of one runtime. All methods may be called from any goroutine; none blocks for long.
type Registry struct {
	mu      sync.RWMutex
	lives   map[Handle]*Life // live ones, and the last retired ones
	last    Handle           // the last one given out
	retired []Handle         // the last retired ones, oldest first
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry { return &Registry{lives: map[Handle]*Life{}} }

// Open begins the life of a communicator, in StateInitializing.
func (r *Registry) Open(info Info) *Life {
	life := &Life{registry: r, info: info, acts: map[Call]Site{}}
	life.state.Store(uint32(StateInitializing))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	life.handle = r.last
	r.lives[life.handle] = life
	return life
}

// Lookup finds the life of a handle. For a stale handle the error is that of a call on the ended communicator, a
// *UsageError; it names the communicator and the call that ended it, unless that is long ago. For a handle that this
// registry never gave out, the error is a *UsageError with CodeInvalidArgument.
func (r *Registry) Lookup(h Handle) (*Life, error) {
	r.mu.RLock()
	life, last := r.lives[h], r.last
	retired := life != nil && life.retired
	r.mu.RUnlock()

	switch {
	case h == 0 || h > last:
		return nil, invalid("the handle %d is of no communicator of this runtime", h)
	case life == nil:
		return nil, &UsageError{
			Code:   CodeDestroyed,
			State:  StateDestroyed,
			Detail: fmt.Sprintf("the handle %d is of a communicator that ended long ago; use handles of live ones", h),
		}
	case retired:
		return nil, life.stale()
	default:
		return life, nil
	}
}

// retire retires a life; it is false if the life was retired before.
func (r *Registry) retire(life *Life) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if life.retired {
		return false
	}
	life.retired = true
	if r.retired = append(r.retired, life.handle); len(r.retired) > remembered {
		delete(r.lives, r.retired[0])
		r.retired = r.retired[1:]
	}
	return true
}

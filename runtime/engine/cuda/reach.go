//go:build linux && cgo

package cuda

import (
	"context"
	"crypto/rand"
	"sync"

	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/queue"
)

// maxReached bounds the number of a rank's allocations that others access.
const maxReached = 1024

// process identifies this process to the ranks of other processes.
var process = sync.OnceValue(func() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
})

// reach registers this rank's buffers with the other ranks, so that nothing needs staging: by address within the
// process, and by legacy IPC handle otherwise. It registers the whole allocation, in the background, when a call passes
// it for the second time; a captured call, which will be launched many times, registers it at once. Memory without IPC
// handles (from cuMemCreate, from a pool, or on the host) stays unregistered.
//
// A caller may free registered memory. The other ranks unmap it once this rank notices; until then the driver keeps it.
type reach struct {
	device *device
	known  map[cuda.Pointer]*allocation // by base address; used by the goroutine whose turn it is

	running context.Context // done after leave
	end     context.CancelFunc
	asking  sync.WaitGroup
}

// An allocation is one of this rank's allocations that calls have passed.
type allocation struct {
	cuda.Allocation
	ended chan struct{}           // closed when the other ranks have been asked; nil before asking
	at    [kernel.MaxRanks]uint64 // its addresses on all ranks, as in kernel.Reach; set when ended is closed
}

func newReach(d *device) *reach {
	r := &reach{device: d, known: map[cuda.Pointer]*allocation{}}
	r.running, r.end = context.WithCancel(context.Background())
	return r
}

// of returns the addresses at which all ranks access a buffer, as in kernel.Reach. A captured call waits until they are
// known or the rank leaves.
func (r *reach) of(buffer []byte, captured bool) (at [kernel.MaxRanks]uint64) {
	p := queue.Address(buffer)
	found, err := r.device.gpu.context.Lookup(p)
	if err != nil || !found.IPC || found.Host {
		return at
	}
	a := r.known[found.Base]
	first := a == nil || a.ID != found.ID
	if first {
		r.forgetFreed()
		if len(r.known) == maxReached {
			return at
		}
		a = &allocation{Allocation: found}
		r.known[found.Base] = a
	}
	if a.ended == nil && (!first || captured) {
		a.ended = make(chan struct{})
		r.asking.Go(func() { r.ask(a) })
	}
	if captured {
		r.device.Watch() // makes this rank leave if the others don't answer for a known reason
		<-a.ended
	}
	select {
	case <-a.ended:
	default:
		return at
	}
	for k, base := range a.at[:r.device.size] {
		if base != 0 {
			at[k] = base + uint64(p-found.Base)
		}
	}
	return at
}

// ask asks all other ranks at once to map an allocation. If one of them can't, it stays unregistered.
func (r *reach) ask(a *allocation) {
	defer close(a.ended)
	d := r.device
	q := request{Rank: uint32(d.rank), Process: process(), ID: a.ID, Base: uint64(a.Base)}
	var err error
	if q.Handle, err = d.gpu.context.IPCHandle(a.Base); err != nil {
		return
	}
	at := [kernel.MaxRanks]uint64{uint64(a.Base)}
	asking, end := context.WithCancel(r.running)
	defer end()
	var others sync.WaitGroup
	for k := 1; k < d.size; k++ {
		others.Go(func() {
			p, err := askFor(asking, d.windows.addresses[(d.rank+k)%d.size], askReach, q)
			if err != nil || p == 0 {
				end()
			}
			at[k] = uint64(p)
		})
	}
	others.Wait()
	if asking.Err() == nil { // otherwise ranks that have mapped it keep the mapping until they are closed
		a.at = at
	}
}

// forgetFreed makes the other ranks unmap what the caller has freed.
func (r *reach) forgetFreed() {
	d := r.device
	for base, a := range r.known {
		if now, err := d.gpu.context.Lookup(base); err == nil && now.ID == a.ID {
			continue
		}
		delete(r.known, base)
		if a.ended == nil {
			continue
		}
		q := request{Rank: uint32(d.rank), Process: process(), ID: a.ID}
		for k := 1; k < d.size; k++ {
			r.asking.Go(func() {
				<-a.ended
				_, _ = askFor(r.running, d.windows.addresses[(d.rank+k)%d.size], askForget, q) // or unmapped at close
			})
		}
	}
}

// leave ends all requests: what is not registered stays unregistered. A nil reach has no requests.
func (r *reach) leave() {
	if r != nil {
		r.end()
	}
}

// close calls leave and waits until the requests have ended.
func (r *reach) close() {
	if r != nil {
		r.leave()
		r.asking.Wait()
	}
}

// reached holds the other ranks' allocations that this rank has mapped. It implements mapper.
type reached struct {
	context *cuda.Context
	near    [kernel.MaxRanks]bool // the rank is in this process, and kernels access its memory by address

	mu     sync.Mutex
	mapped map[mapping]cuda.Pointer // allocations of other processes
}

type mapping struct {
	rank uint32
	id   uint64
}

func (r *reached) reach(q request) cuda.Pointer {
	if q.Process == process() {
		if int(q.Rank) < len(r.near) && r.near[q.Rank] {
			return cuda.Pointer(q.Base)
		}
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m := mapping{q.Rank, q.ID}
	p, ok := r.mapped[m]
	if !ok && len(r.mapped) < maxReached*kernel.MaxRanks {
		var err error
		if p, err = r.context.OpenIPC(q.Handle); err != nil {
			return 0
		}
		r.mapped[m] = p
	}
	return p
}

func (r *reached) forget(q request) {
	m := mapping{q.Rank, q.ID}
	r.mu.Lock()
	p, ok := r.mapped[m]
	delete(r.mapped, m)
	r.mu.Unlock()
	if ok { // outside the mutex: CloseIPC waits for all kernels, and one may wait for a rank that asks to map
		_ = r.context.CloseIPC(p)
	}
}

// close unmaps everything. No kernel may use it any more, and no requests may arrive. A nil reached holds nothing.
func (r *reached) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for m, p := range r.mapped {
		_ = r.context.CloseIPC(p)
		delete(r.mapped, m)
	}
}

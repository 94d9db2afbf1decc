package ccl

import "sync"

// workers are the goroutines of a communicator. After wait was called, start runs its function in the caller's
// goroutine, where the function finds that the communicator has ended.
type workers struct {
	mu     sync.Mutex // orders start and wait: no goroutine joins a group being waited for
	group  sync.WaitGroup
	closed bool
}

func (w *workers) start(fn func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		fn()
		return
	}
	defer w.mu.Unlock()
	w.group.Go(fn)
}

func (w *workers) wait() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.group.Wait()
}

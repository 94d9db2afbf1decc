package ccl

import "sync"

// crew are the goroutines of a communicator. Once it is dismissed no more come: what would be started then runs at
// once, in the caller's goroutine, where it finds the communicator ended.
type crew struct {
	mu        sync.Mutex // orders start and dismiss: nobody joins a group that is waited for
	group     sync.WaitGroup
	dismissed bool
}

// start runs fn in a goroutine of the communicator.
func (w *crew) start(fn func()) {
	w.mu.Lock()
	if w.dismissed {
		w.mu.Unlock()
		fn()
		return
	}
	defer w.mu.Unlock()
	w.group.Add(1)
	go func() {
		defer w.group.Done()
		fn()
	}()
}

// dismiss waits until all have ended.
func (w *crew) dismiss() {
	w.mu.Lock()
	w.dismissed = true
	w.mu.Unlock()
	w.group.Wait()
}

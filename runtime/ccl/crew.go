package ccl

import "sync"

// crew are the goroutines of a communicator.
//
// Invariant: after dismiss has begun nobody joins, so that a call that races with the end of the communicator does not
// add to what is awaited.
type crew struct {
	mu        sync.Mutex
	dismissed bool
	wg        sync.WaitGroup
}

// Go runs fn in a goroutine of its own. On a communicator that has ended it runs fn here, which finds that out and returns.
func (c *crew) Go(fn func()) {
	if !c.join(fn) {
		fn()
	}
}

func (c *crew) join(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dismissed {
		c.wg.Go(fn)
	}
	return !c.dismissed
}

// dismiss waits until all have returned.
func (c *crew) dismiss() {
	c.mu.Lock()
	c.dismissed = true
	c.mu.Unlock()
	c.wg.Wait()
}

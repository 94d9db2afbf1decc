package endpoint

import (
	"context"
	"sync"
)

// atOnce is how many endpoints are asked at a time. One that doesn't answer takes its whole time.
const atOnce = 64

// All asks all targets for snapshots, several at a time. What belongs to targets[i] is at i: a snapshot, or an error.
func (c *Client) All(ctx context.Context, targets []Target) ([]*Snapshot, []error) {
	snapshots, errs := make([]*Snapshot, len(targets)), make([]error, len(targets))
	next := make(chan int)
	var asking sync.WaitGroup
	for range min(atOnce, len(targets)) {
		asking.Go(func() {
			for i := range next {
				snapshots[i], errs[i] = c.Snapshot(ctx, targets[i])
			}
		})
	}
	for i := range targets {
		next <- i
	}
	close(next)
	asking.Wait()
	return snapshots, errs
}

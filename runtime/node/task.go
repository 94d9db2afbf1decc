package node

import (
	"context"
	"sync"
	"time"
)

// task runs functions in the background from start to stop or drain. The zero task runs nothing.
type task struct {
	ctx     context.Context // of the functions; nil before start
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// start runs functions, each in a goroutine of its own, until their context ends.
func (t *task) start(all ...func(context.Context)) {
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for _, run := range all {
		t.also(run)
	}
}

// also runs one more function, once the task has started.
func (t *task) also(run func(context.Context)) { t.running.Go(func() { run(t.ctx) }) }

// stop ends the functions, and waits for them.
func (t *task) stop() {
	if t.cancel != nil {
		t.cancel()
		t.running.Wait()
	}
}

// drain waits until the functions end by themselves, and stops them if ctx ends first.
func (t *task) drain(ctx context.Context) {
	if t.cancel != nil {
		defer context.AfterFunc(ctx, t.cancel)()
		t.running.Wait()
		t.cancel()
	}
}

// every calls fn at intervals, the first time after one interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, fn func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			fn()
		}
	}
}

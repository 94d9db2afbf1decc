package ccl

import (
	"context"
	"runtime"
	"sync"
	"testing"
)

// watched is a context that reports when something first waits for its end.
type watched struct {
	context.Context
	once   sync.Once
	waited chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waited) })
	return w.Context.Done()
}

// Wait also waits for calls that another goroutine begins meanwhile: when it returns, nothing is in progress.
func TestWaitOutlastsWhatComesMeanwhile(t *testing.T) {
	rt := quiet(t)
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c, first, next := comms[0], newWork(), newWork()
	c.jobs.add(first)
	ctx := &watched{Context: t.Context(), waited: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- c.Wait(ctx) }()
	<-ctx.waited
	c.jobs.add(next)
	first.finish(nil)
	for left := 2; left > 1; runtime.Gosched() { // until Wait has completed the first
		c.jobs.mu.Lock()
		left = len(c.jobs.list)
		c.jobs.mu.Unlock()
	}
	next.finish(nil)
	if err := <-done; err != nil {
		t.Errorf("Wait = %v", err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

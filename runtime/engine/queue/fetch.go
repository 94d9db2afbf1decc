//go:build linux && cgo

package queue

import (
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// fetching gets onto the queue's page what kernels have said in the GPU's memory. It belongs to the watcher, and to
// Left when that has stopped.
type fetching struct {
	words cuda.Pointer // in the GPU's memory; 0 for none
	page  *Page        // where they are copied to
	seen  uint32       // the kernel that was done at the last look
}

// look takes over what was copied, and copies again if the page stands still while something runs: otherwise kernels
// tell the page themselves.
func (f *fetching) look(q *Queue) {
	launched := q.launched.Load()
	if f.words == 0 || q.Page.Done() == launched || q.Side.Query() != nil {
		return
	}
	q.Page.Merge(f.page.DevicePage)
	done := q.Page.Done()
	if done == f.seen && done != launched {
		_ = q.Side.Copy(f.page.Words(), f.words, tape.DeviceBlockSize*tape.DeviceBlocks) // the next Query has the error
	}
	f.seen = done
}

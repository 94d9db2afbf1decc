//go:build linux && cgo

package queue

import (
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// fetching brings onto the queue's page what kernels have written into the GPU's memory: that they are done. It belongs
// to the goroutine that asks the driver, and to Left once that has ended.
type fetching struct {
	words  cuda.Pointer // in the GPU's memory; 0 for none
	page   *Page        // where they are copied to
	copied bool         // and not yet merged
	seen   uint32       // the last kernel that was known to be done at the last look
}

// look merges what was copied, and copies again if the page stands still while something runs. As long as it moves,
// what kernels write onto it themselves is enough. Its error is cuda.ErrNotReady, or that of what runs.
func (f *fetching) look(q *Queue) error {
	if err := q.Side.Query(); err != nil || f.words == 0 {
		return err
	}
	if f.copied { // once: numbers in an old copy may look like those of later kernels
		q.Page.Merge(f.page.DevicePage)
		f.copied = false
	}
	done := q.Page.Done()
	if done == f.seen && done != q.launched.Load() {
		err := q.Side.Copy(f.page.Words(), f.words, tape.DeviceBlockSize*tape.DeviceBlocks)
		f.copied = err == nil // otherwise the next Query has the error
	}
	f.seen = done
	return nil
}

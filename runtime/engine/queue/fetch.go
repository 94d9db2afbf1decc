//go:build linux && cgo

package queue

import (
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// fetching copies to the queue's page which kernels are done, as kernels have recorded it in GPU memory. It belongs to
// the goroutine that asks the driver, and to Left after that goroutine has ended.
type fetching struct {
	words  cuda.Pointer // in GPU memory; 0 for none
	page   *Page        // where words is copied to
	copied bool         // words was copied but not yet merged
	seen   uint32       // the last kernel known to be done at the previous look
}

// look merges what was copied, and copies again if the page hasn't changed while something runs. As long as the page
// changes, what kernels write to it themselves is enough. The error is cuda.ErrNotReady, or the error of what runs.
func (f *fetching) look(q *Queue) error {
	if err := q.Side.Query(); err != nil || f.words == 0 {
		return err
	}
	if f.copied { // only once: numbers in an old copy may look like those of later kernels
		q.Page.Merge(f.page.DevicePage)
		f.copied = false
	}
	done := q.Page.Done()
	if done == f.seen && done != q.launched.Load() {
		err := q.Side.Copy(f.page.Words(), f.words, tape.DeviceBlockSize*tape.DeviceBlocks)
		f.copied = err == nil // otherwise the next Query returns the error
	}
	f.seen = done
	return nil
}

//go:build linux && cgo

package queue

import (
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// overdue is the operation that takes the GPU long. The in-flight table drops the operation when the communicator ends,
// so it is also recorded on the op ring, as host operations are. It belongs to the watcher's goroutine, and after that
// to the goroutine that ends the communicator.
type overdue struct {
	done  uint32 // the last launch that was done
	since int64  // when that was first seen; 0: never
	op    tape.Launched
	phase tape.Phase
	wait  int32
}

// lookAtOverdue records the state of the oldest operation that is not done, if the GPU has completed nothing for long
// enough to count as slow.
func (q *Queue) lookAtOverdue() {
	o, t, done := &q.overdue, q.comm.Tape, q.Page.Done()
	next, running := q.find(done + 1)
	if o.since == 0 || o.done != done {
		o.done, o.since = done, tape.Now()
		if !running || next.op.Start() != o.op.Start() { // an operation may have several launches
			q.endOverdue(lifecycle.CodeOK)
		}
	}
	if !running || !t.Overdue(max(o.since, next.op.Start())) {
		return
	}
	if o.op.Start() == 0 {
		o.op, o.phase, o.wait = next.op, tape.PhaseStream, -1
		t.Again(&o.op, tape.StageStart, o.phase, o.wait, lifecycle.CodeOK)
	}
	phase, wait := tape.PhaseQueued, int32(-1)
	if w, waits := q.Page.Waits(); waits {
		phase, wait = tape.PhaseTransfer, w.Peer
	}
	if phase != o.phase || wait != o.wait {
		o.phase, o.wait = phase, wait
		t.Again(&o.op, tape.StageWait, phase, wait, lifecycle.CodeOK)
	}
}

// endOverdue records the end of the overdue operation, if there is one.
func (q *Queue) endOverdue(code lifecycle.Code) {
	if o := &q.overdue; o.op.Start() != 0 {
		q.comm.Tape.Again(&o.op, tape.StageEnd, o.phase, o.wait, code)
		o.op = tape.Launched{}
	}
}

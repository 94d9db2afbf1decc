//go:build linux && cgo

package queue

import (
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// overdue is the operation that the GPU takes long for. The in-flight table forgets it when the communicator ends, so
// it is recorded on the op ring, too, as an operation of the host is. It belongs to the watcher's goroutine, and after
// that to the one that ends the communicator.
type overdue struct {
	done  uint32 // the last launch that was done
	since int64  // when that was seen; 0: never
	op    tape.Launched
	phase tape.Phase
	wait  int32
}

// lookAtOverdue records what there is to say of the oldest operation that is not done, if the GPU has done nothing for
// as long as is slow.
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

// endOverdue records the end of what is overdue, if something is.
func (q *Queue) endOverdue(code lifecycle.Code) {
	if o := &q.overdue; o.op.Start() != 0 {
		q.comm.Tape.Again(&o.op, tape.StageEnd, o.phase, o.wait, code)
		o.op = tape.Launched{}
	}
}

//go:build linux && cgo

package queue

import (
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// overdue is the operation that the GPU takes long for. The tape has it once more, with records as of a host's
// operation: what the in-flight table says is gone when the communicator has ended.
type overdue struct {
	op    tape.Launched
	phase tape.Phase
	wait  int32
}

// lookAtOverdue writes what there is to say of it. It belongs to the watcher, and when that has ended, to what ends the
// communicator.
func (q *Queue) lookAtOverdue(ends bool) {
	o, t := &q.overdue, q.comm.Tape
	number := q.Page.Done() + 1
	next, running := q.find(number)
	if !running && int32(number-q.launched.Load()) <= 0 {
		return // too many are behind it
	}
	if o.op.Start() != 0 && (!running || next.op.Start() != o.op.Start()) {
		t.Again(&o.op, tape.StageEnd, tape.PhaseStream, -1, lifecycle.CodeOK)
		*o = overdue{}
	}
	if !running || !t.Overdue(&next.op) {
		return
	}
	if o.op.Start() == 0 {
		*o = overdue{op: next.op, wait: -1}
		t.Again(&o.op, tape.StageStart, tape.PhaseStream, -1, lifecycle.CodeOK)
	}
	phase, wait := tape.PhaseQueued, int32(-1)
	if w, waits := q.Page.Waits(); waits {
		phase, wait = tape.PhaseTransfer, w.Peer
	}
	if phase != o.phase || wait != o.wait {
		o.phase, o.wait = phase, wait
		t.Again(&o.op, tape.StageWait, phase, wait, lifecycle.CodeOK)
	}
	if ends {
		t.Again(&o.op, tape.StageEnd, phase, wait, lifecycle.CodeAborted)
		*o = overdue{}
	}
}

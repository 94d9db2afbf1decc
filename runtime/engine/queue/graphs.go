//go:build linux && cgo

package queue

import (
	"errors"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// graphs tracks the launches of captured kernels. The kernels count the launches and write to a page of their own,
// which stays as long as graphs may launch them: the tape's page goes to another communicator when this one ends.
// Readers of the tape see the launches as operations of a separate communicator.
type graphs struct {
	page *Page
	tape *tape.CommWriter // nil if nothing was captured, or there is no tape; written by the watcher

	mu         sync.Mutex // guards operations and numbers
	operations []tape.Signature
	numbers    map[tape.Signature]uint32 // operation numbers, from 1

	// Used by the watcher.
	replayed uint64         // number of collectives at the last count
	last     tape.Signature // the last of these collectives
	waited   uint32         // the kernel that was waiting at the last look; 0 for none
	launched uint64         // the operation that the tape shows in flight; 0 for none
	number   uint64         // number of that operation
	call     lifecycle.Call
}

// Capture registers operations that are captured as one launch. It returns the page to which their kernel writes, and
// the number by which the kernel identifies them.
func (q *Queue) Capture(ops []engine.Op) (page *Page, operation uint32) {
	op := &ops[0]
	sig := tape.Signature{
		Call: op.Call, DataType: uint8(op.DataType), Reduction: uint8(op.Reduction), Peer: int32(op.Peer),
		Bytes: uint64(max(len(op.Send), len(op.Recv))),
	}
	if !op.Call.IsCollective() { // nothing numbers them
		sig.Call, sig.Peer, sig.Bytes = lifecycle.CallSendRecv, -1, 0
		for i := range ops {
			sig.Bytes += uint64(len(ops[i].Send) + len(ops[i].Recv))
		}
	}
	g := &q.graphs
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.numbers == nil {
		g.numbers = map[tape.Signature]uint32{}
		g.tape = q.comm.Tape.Graphs()
	}
	if operation = g.numbers[sig]; operation == 0 {
		g.operations = append(g.operations, sig)
		operation = uint32(len(g.operations))
		g.numbers[sig] = operation
	}
	return g.page, operation
}

// operation returns the operation that a kernel says it runs.
func (g *graphs) operation(w tape.DeviceWord) (sig tape.Signature) {
	if i := int(w.Operation) - 1; i >= 0 && i < len(g.operations) {
		return g.operations[i]
	}
	return tape.Signature{Peer: -1}
}

// Replay returns the word and the operation of the first kernel of a graph that gave up. ok is false if there is none.
func (q *Queue) Replay() (w tape.DeviceWord, sig tape.Signature, ok bool) {
	g := &q.graphs
	if w, ok = g.page.End(); !ok {
		return w, sig, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return w, g.operation(w), true
}

// look writes onto the tape what graphs have launched: the operation that has been waiting since the last look, or, if
// there is none, how far they have come.
func (g *graphs) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tape == nil {
		return
	}
	if g.launched != 0 && g.page.Done()+1 != g.waited {
		g.end(lifecycle.CodeOK)
	}
	waits, waiting := g.page.Waits()
	if g.launched == 0 {
		g.passed()
		if waiting && waits.Number == g.waited {
			g.start(waits)
		}
		g.waited = waits.Number
	}
	if g.launched != 0 {
		g.tape.Wait(waits.Peer)
	}
}

// passed shows how far graphs have come.
func (g *graphs) passed() {
	newest, done := g.page.Newest()
	n, sig := g.count(newest), g.operation(newest)
	if sig.Call.IsCollective() {
		g.last = sig
		if !done {
			n--
		}
	}
	g.tape.Passed(n, &g.last)
}

// start shows a waiting kernel as an operation in flight.
func (g *graphs) start(w tape.DeviceWord) {
	sig := g.operation(w)
	g.call, g.number = sig.Call, uint64(w.Number)
	if sig.Call.IsCollective() {
		g.number = g.count(w)
	}
	g.launched = g.tape.Start(g.number, sig, 0)
	g.tape.Phase(tape.PhaseTransfer)
	g.tape.Wait(w.Peer)
}

// end ends the operation in flight, if there is one.
func (g *graphs) end(code lifecycle.Code) {
	g.tape.End(g.launched, code)
	g.launched = 0
}

// fail records why the running operation is given up.
func (g *graphs) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w, waits := g.page.Waits(); g.launched == 0 && waits {
		g.start(w)
	}
	if g.tape == nil || g.launched == 0 {
		return
	}
	peer := int32(-1)
	if p, ok := errors.AsType[*lifecycle.PeerError](err); ok {
		peer = int32(p.Rank)
	}
	code := lifecycle.CodeOf(err)
	g.end(code)
	g.tape.State(lifecycle.StateFailed)
	g.tape.Life(tape.LifeRecord{
		Call: g.call, Stage: tape.StageEnd, Seq: g.number, Code: code, State: lifecycle.StateFailed, Peer: peer,
		Text: err.Error(),
	})
}

// count returns how many collectives graphs have launched, according to a kernel, which counts them modulo 2^32.
func (g *graphs) count(w tape.DeviceWord) uint64 {
	g.replayed += uint64(int64(int32(w.Replayed - uint32(g.replayed))))
	return g.replayed
}

// close ends the operation in flight and the communicator that readers see.
func (g *graphs) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tape != nil && g.launched == 0 {
		g.passed()
	}
	g.end(lifecycle.CodeAborted)
	g.tape.Close()
}

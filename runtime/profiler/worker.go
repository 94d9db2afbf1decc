package profiler

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// kind is the kind of a record.
type kind uint8

const (
	kindInit kind = iota
	kindStart
	kindState
	kindStop
	kindFinalize
)

// record is an element of a plug-in's queue.
type record struct {
	Event // for kindStart; but all records use its time
	kind  kind
	comm  *Comm
	id    ID
	// parent is the parent event, or an operation's group.
	parent ID
	state  State // new state for kindState, first state for kindStart; 0 for none
	n      uint64
	code   lifecycle.Code
	told   chan struct{} // for kindInit: closed when the plug-in has returned
}

// worker runs a plug-in.
type worker struct {
	p      *Profiler
	plugin Plugin
	name   string
	queue  chan record
	mask   atomic.Uint32 // types that the plug-in asks for
	since  atomic.Int64  // when the current call of the plug-in began, relative to begin; 0 if there is none
	count  atomic.Uint64
	why    atomic.Pointer[string] // why it was switched off; nil if it is on
	gone   chan struct{}          // closed when the plug-in is switched off
	done   chan struct{}          // closed when its goroutine has ended
	stuck  chan struct{}          // closed when a call of the plug-in lasts too long
	giveUp func()                 // closes stuck, once

	sessions map[*Comm]*session // of the accepted communicators; used by the worker's goroutine
	inits    int
}

// session is a communicator that the plug-in accepted.
type session struct {
	recorder Recorder
	open     map[ID]open
}

// open is an event that has not ended.
type open struct {
	handle Handle // nil if the plug-in does not want it
	api    Handle // handle of a group's API event
	group  Handle // the group made for an operation outside groups
}

// maxOpen bounds the open events of a communicator.
const maxOpen = 1 << 16

func (w *worker) off() bool { return w.why.Load() != nil }

// wants reports whether the plug-in is on and asks for one of these types.
func (w *worker) wants(types Mask) bool { return w.mask.Load()&uint32(types) != 0 && !w.off() }

func (w *worker) status() Status {
	s := Status{Name: w.name, Told: w.count.Load()}
	if why := w.why.Load(); why != nil {
		s.Off = *why
	}
	return s
}

// put appends a record to the queue. It never blocks.
func (w *worker) put(r *record) {
	if w.off() {
		return
	}
	select {
	case w.queue <- *r:
	default:
		w.switchOff(fmt.Sprintf("it is too slow: %d events wait for it", queued))
	}
}

// switchOff switches the plug-in off. It may be called from any goroutine, and repeatedly.
func (w *worker) switchOff(why string) {
	if !w.why.CompareAndSwap(nil, &why) {
		return
	}
	close(w.gone)
	w.p.offs <- w // has room for all, so that the data path does not wait for the log
}

// setMask asks the plug-in which types it wants from now on.
func (w *worker) setMask() { w.mask.Store(uint32(w.plugin.Mask())) }

// run calls the plug-in for the queued records.
func (w *worker) run() {
	defer close(w.done)
	returned := false
	defer func() {
		w.since.Store(0)
		if r := recover(); r != nil {
			w.switchOff(fmt.Sprintf("it panicked: %v", r))
		} else if !returned {
			w.switchOff("it ended its goroutine")
		}
	}()
	w.serve()
	w.finalize()
	returned = true
}

// serve processes records until the plug-in is off, or the Profiler is closed and the queue is empty.
func (w *worker) serve() {
	for !w.off() {
		select {
		case r := <-w.queue:
			w.tell(&r)
			continue
		default:
		}
		select {
		case r := <-w.queue:
			w.tell(&r)
		case <-w.gone:
		case <-w.p.quit:
			if len(w.queue) == 0 {
				return
			}
		}
	}
}

// finalize finalizes the remaining communicators.
func (w *worker) finalize() {
	for c, s := range w.sessions {
		delete(w.sessions, c)
		w.began()
		s.recorder.Finalize()
	}
}

// began records, for look, that a call of the plug-in begins.
func (w *worker) began() { w.since.Store(max(int64(time.Since(begin)), 1)) }

func (w *worker) tell(r *record) {
	w.began()
	defer w.since.Store(0)
	w.count.Add(1)
	s := w.sessions[r.comm]
	switch {
	case r.kind == kindInit:
		w.init(r)
	case s == nil: // the plug-in refused the communicator
		return
	case r.kind == kindStart:
		if len(s.open) < maxOpen {
			s.open[r.id] = w.start(s, r)
		}
	case r.kind == kindState:
		o := s.open[r.id]
		w.state(s, &o, r)
	case r.kind == kindStop:
		o := s.open[r.id]
		delete(s.open, r.id)
		w.stop(s, &o, r)
	case r.kind == kindFinalize:
		delete(w.sessions, r.comm)
		s.recorder.Finalize()
	}
	w.setMask()
}

func (w *worker) init(r *record) {
	defer close(r.told)
	recorder, err := w.plugin.Init(r.comm.info)
	w.inits++
	switch {
	case err == nil && recorder != nil:
		w.sessions[r.comm] = &session{recorder, map[ID]open{}}
		w.setMask() // before the communicator's first event
	case err == nil:
		w.switchOff("its Init returned neither a Recorder nor an error")
	case w.inits == 1:
		w.switchOff(fmt.Sprintf("its Init failed: %v", err))
	default:
		w.p.log.Warn("the profiler plug-in refused a communicator, and is not told of it",
			"plugin", w.name, "comm", r.comm.info.Name, "error", err)
	}
}

// begin starts an event, if the plug-in asked for it or an event below it, and returns its handle.
func (w *worker) begin(s *session, e *Event) Handle {
	if !w.wants(askedBy(e.Type)) {
		return nil
	}
	return s.recorder.Start(e)
}

// state reports an event's new state, if there is one.
func (w *worker) state(s *session, o *open, r *record) {
	if o.handle != nil && r.state != 0 {
		s.recorder.State(o.handle, &Change{State: r.state, At: r.At, N: r.n})
	}
}

func (w *worker) end(s *session, h Handle, r *record) {
	if h != nil {
		s.recorder.Stop(h, &End{At: r.At, Code: r.code})
	}
}

// start starts an event, and the events that NCCL has around it: for an operation its API call and, if it is outside
// groups, a group.
func (w *worker) start(s *session, r *record) open {
	e, o, parent := &r.Event, open{}, s.open[r.parent]
	switch r.Type {
	case Group:
		o.api = w.beginAPI(s, r)
		o.handle = w.begin(s, e)
		return o
	case Collective, PointToPoint:
	default:
		e.Parent = parent.handle
		o.handle = w.begin(s, e)
		w.state(s, &o, r)
		return o
	}
	alone := r.parent == 0
	if alone {
		o.api = w.beginAPI(s, r)
		parent = open{api: o.api}
	}
	call := *e
	call.Type, call.Parent = e.Type<<8, parent.api
	e.Parent = w.begin(s, &call)
	w.end(s, e.Parent, r)
	if alone {
		o.group = w.begin(s, &Event{Type: Group, At: e.At, Rank: e.Rank})
		parent.handle = o.group
	}
	e.Group = parent.handle
	o.handle = w.begin(s, e)
	return o
}

// beginAPI starts the API event of a group after all its calls were made.
func (w *worker) beginAPI(s *session, r *record) Handle {
	h := w.begin(s, &Event{Type: GroupAPI, At: r.At, Rank: r.Rank})
	if h != nil {
		for _, state := range []State{GroupStartAPIStop, GroupEndAPIStart} {
			s.recorder.State(h, &Change{State: state, At: r.At})
		}
	}
	return h
}

func (w *worker) stop(s *session, o *open, r *record) {
	for _, h := range []Handle{o.handle, o.group, o.api} {
		w.end(s, h, r)
	}
}

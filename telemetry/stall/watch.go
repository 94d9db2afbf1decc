package stall

import (
	"math"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// rendezvousPatience is how many times longer than anything else an act may find the other ranks: a job's ranks come when the
// scheduler starts them.
const rendezvousPatience = 6

// maxActs bounds the acts that are known to be open: far more than communicators have, unless the ends of many were missed.
const maxActs = 16 << 10

// Watch finds what takes too long. It belongs to one owner at a time. Its memory is bounded: by the live communicators of the table that
// it is shown, and by 16,384 open acts.
type Watch struct {
	cfg   Config
	norms norms
	seen  []seen // by tape.Tally.Index

	acts map[actKey]*openAct
	ops  map[uint32]*trouble // by generation: the operation of that communicator that takes long
	late map[uint32]*actWait // during Check, by generation: whom late acts wait for
	tick uint64              // counts the calls of Check
}

// actKey is one rank's part in one act.
type actKey struct {
	comm uint32 // tape.Event.Generation
	act  tape.Act
	seq  uint64
}

// openAct is an act that has started and not ended.
type openAct struct {
	comm  tape.CommInfo
	slot  int // as tape.Event.Slot
	start int64
	phase tape.Phase
	t     trouble
}

// trouble is what was told of something that takes long. The zero value is: nothing.
type trouble struct {
	last Report // the last one; its Stage is 0 if there was none
	next int64  // when it is to be told again
	tick uint64 // the Check that saw it last
}

// actWait is what the in-flight table says of a communicator with a late act.
type actWait struct {
	slot  tape.Slot
	found bool
}

// New makes a Watch. The error names what is wrong with cfg.
func New(cfg Config) (*Watch, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Watch{
		cfg: cfg.complete(), acts: make(map[actKey]*openAct), ops: make(map[uint32]*trouble), late: make(map[uint32]*actWait),
	}, nil
}

// seen is what a tally had counted when it was looked at.
type seen struct {
	count uint64
	took  time.Duration
}

// Observe takes the tape's next event, of which it keeps no more than the communicator's description. It does not allocate for operations.
func (w *Watch) Observe(ev *tape.Event) {
	if ev.IsLife {
		w.observeLife(ev)
		return
	}
	r := &ev.Op
	if r.Stage == tape.StageEnd && r.Code == lifecycle.CodeOK && r.Start > 0 && r.Time > r.Start && !r.Ordinary { // Learn takes those
		w.norms.op(r.Signature.Call, r.Signature.Bytes).learn(r.Time - r.Start)
	}
}

// Learn takes what the tape has counted, of operations that never had to wait, since it was called last. Of those of one kind it learns their
// mean, as often as there were any and often enough to forget what was before.
func (w *Watch) Learn(tallies []tape.Tally) {
	for i := range tallies {
		t := &tallies[i]
		for len(w.seen) <= t.Index {
			w.seen = append(w.seen, seen{})
		}
		before := &w.seen[t.Index]
		count, took := t.Ordinary-before.count, t.OrdinaryTime-before.took
		*before = seen{t.Ordinary, t.OrdinaryTime}
		if count == 0 || took <= 0 {
			continue
		}
		normal, mean := w.norms.class(t.Call, t.SizeClass), int64(took)/int64(min(count, math.MaxInt64))
		for range min(count, enough) {
			normal.learn(max(mean, 1))
		}
	}
}

// enough is how many samples bring a median from a minute to some microseconds.
const enough = 128

func (w *Watch) observeLife(ev *tape.Event) {
	r := &ev.Life
	if r.Act == tape.ActNone || r.Act == tape.ActLeak {
		return
	}
	key := actKey{ev.Generation, r.Act, r.Seq}
	switch r.Stage {
	case tape.StageStart, tape.StagePhase:
		act := w.acts[key]
		if act == nil {
			if len(w.acts) >= maxActs {
				return
			}
			act = &openAct{start: startOf(r)}
			w.acts[key] = act
		}
		act.comm, act.slot, act.phase = ev.Comm, ev.Slot, r.Phase
	case tape.StageEnd:
		if r.Code == lifecycle.CodeOK && startOf(r) < r.Time {
			w.norms.act(r.Act).learn(r.Time - startOf(r))
		}
		if act := w.acts[key]; act != nil && act.t.last.Stage == 0 {
			delete(w.acts, key)
		} else if act != nil { // Check says that it is cleared
			act.t.next = ended
		}
	default:
	}
}

// ended is the time at which an act that has ended is to be told of next: never.
const ended = -1

func startOf(r *tape.LifeRecord) int64 {
	if r.Start > 0 && r.Start < r.Time {
		return r.Start
	}
	return r.Time
}

// Check looks at all live communicators, as they are at the time now of the tape's clock, and appends to buf what there is to tell. It does
// not allocate while nothing is slow. It reads slots during the call only.
func (w *Watch) Check(slots []tape.Slot, now int64, buf []Report) []Report {
	w.tick++
	w.findLate(now)
	for i := range slots {
		s := &slots[i]
		if len(w.late) > 0 {
			if l := w.late[s.Generation]; l != nil {
				l.slot, l.found = *s, true
			}
		}
		if s.Launched != s.Completed && s.Op.Call.IsOperation() && now-s.OpStart >= int64(w.cfg.Slow) {
			buf = w.checkOp(s, now, buf)
		}
	}
	buf = w.clearOps(now, buf)
	return w.checkActs(now, buf)
}

// checkOp tells of an operation in flight that is older than the slow threshold.
func (w *Watch) checkOp(s *tape.Slot, now int64, buf []Report) []Report {
	t := w.ops[s.Generation]
	if t != nil && (t.last.Start != s.OpStart || t.last.Seq != s.Seq || t.last.Op != s.Op) {
		buf = t.clear(now, buf) // the communicator is at another one
		delete(w.ops, s.Generation)
		t = nil
	}
	normal := w.norms.op(s.Op.Call, s.Op.Bytes).duration()
	slow, stalled := w.thresholds(normal, s.Phase)
	age := time.Duration(now - s.OpStart)
	if t == nil {
		if age < slow {
			return buf
		}
		t = &trouble{}
		w.ops[s.Generation] = t
	}
	t.tick = w.tick
	return w.tell(t, Report{
		Comm: s.CommInfo, Generation: s.Generation, Op: s.Op, Seq: s.Seq, Phase: s.Phase, Algorithm: s.Algorithm,
		Start: s.OpStart, Now: now, Wait: s.Wait, WaitSince: s.WaitSince, Normal: normal,
	}, slow, stalled, buf)
}

// thresholds are the ages at which something with that normal duration is slow and stalls.
func (w *Watch) thresholds(normal time.Duration, phase tape.Phase) (slow, stalled time.Duration) {
	slow = max(w.cfg.Slow, 2*normal)
	stalled = max(w.cfg.Floor, time.Duration(min(w.cfg.Factor*float64(normal), float64(MaxThreshold))), slow)
	if phase == tape.PhaseRendezvous {
		stalled = max(stalled, rendezvousPatience*w.cfg.Floor)
	}
	return slow, stalled
}

// tell appends what r has to say that was not said yet: that it is slow, that it stalls, or that it still does.
func (w *Watch) tell(t *trouble, r Report, slow, stalled time.Duration, buf []Report) []Report {
	r.Stage, r.Count = t.last.Stage, t.last.Count
	if r.Stage == 0 {
		r.Stage, r.Threshold = Slow, slow
		buf = append(buf, r)
	}
	r.Threshold = stalled
	if r.Age() < stalled || r.Now < t.next {
		t.last = r
		return buf
	}
	r.Stage = Stalled
	r.Count++
	interval := min(stalled, w.cfg.MaxInterval)
	for range min(r.Count-1, 62) {
		if interval *= 2; interval >= w.cfg.MaxInterval {
			interval = w.cfg.MaxInterval
			break
		}
	}
	t.next = r.Now + int64(interval)
	t.last = r
	return append(buf, r)
}

// clear appends that it has ended.
func (t *trouble) clear(now int64, buf []Report) []Report {
	r := t.last
	r.Stage, r.Now = Cleared, max(now, r.Now)
	return append(buf, r)
}

// clearOps tells of the operations that are not in flight any more.
func (w *Watch) clearOps(now int64, buf []Report) []Report {
	for comm, t := range w.ops {
		if t.tick != w.tick {
			buf = t.clear(now, buf)
			delete(w.ops, comm)
		}
	}
	return buf
}

// findLate notes the communicators with acts that are slow, so that their slots can be looked at.
func (w *Watch) findLate(now int64) {
	clear(w.late)
	for key, act := range w.acts {
		if now-act.start >= int64(w.cfg.Slow) && w.late[key.comm] == nil {
			w.late[key.comm] = &actWait{}
		}
	}
}

// checkActs tells of the acts that take long, and of those that did and have ended.
func (w *Watch) checkActs(now int64, buf []Report) []Report {
	for key, act := range w.acts {
		t := &act.t
		if t.next == ended {
			buf = t.clear(now, buf)
			delete(w.acts, key)
			continue
		}
		l := w.late[key.comm]
		if l == nil || now-act.start < int64(w.cfg.Slow) {
			continue
		}
		if !l.found && act.slot >= 0 { // the communicator is gone; that the act ended was overwritten before it was read
			if t.last.Stage != 0 {
				buf = t.clear(now, buf)
			}
			delete(w.acts, key)
			continue
		}
		busy := l.found && l.slot.Launched != l.slot.Completed
		if key.act == tape.ActGroup && busy && l.slot.Op.Call.IsOperation() && t.last.Stage == 0 {
			continue // the operation that the group makes now tells more
		}
		normal := w.norms.act(key.act).duration()
		slow, stalled := w.thresholds(normal, act.phase)
		if t.last.Stage == 0 && time.Duration(now-act.start) < slow {
			continue
		}
		r := Report{
			Comm: act.comm, Generation: key.comm, Act: key.act, ActSeq: key.seq, Phase: act.phase, Start: act.start, Now: now, Wait: -1, Normal: normal,
		}
		if busy {
			r.Op, r.Seq, r.Algorithm, r.Wait, r.WaitSince = l.slot.Op, l.slot.Seq, l.slot.Algorithm, l.slot.Wait, l.slot.WaitSince
			if r.Phase == tape.PhaseNone {
				r.Phase = l.slot.Phase
			}
		}
		buf = w.tell(t, r, slow, stalled, buf)
	}
	return buf
}

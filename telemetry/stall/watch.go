package stall

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxInterval bounds the time between two reports of one stall, which begins with the threshold and doubles.
const maxInterval = time.Minute

// Watch finds what takes too long in a model. It belongs to the model's owner.
type Watch struct {
	process *model.Process
	told    map[model.Activity]*trouble
	tick    uint64 // counts the calls of Check
	reports []Report
	doubted map[*model.Comm]uint64 // what Doubtful found last, with the numbers of the last operations
}

// trouble is what was told of something that takes long.
type trouble struct {
	last Report // the last one
	next int64  // when it is to be told again
	tick uint64 // the Check that saw it last
}

// New makes a Watch of a process. What is slow and what stalls is as the process's Limits say.
func New(process *model.Process) *Watch {
	return &Watch{process: process, told: make(map[model.Activity]*trouble)}
}

// Check looks at what the process does at the time now of the tape's clock, and returns what there is to tell, first of
// what is over; it is valid until the next call. What it tells of is marked in the model. It does not allocate while
// nothing is slow. The model was shown the in-flight table just before.
func (w *Watch) Check(now int64) []Report {
	w.tick++
	w.reports = w.reports[:0]
	for _, c := range w.process.Late(now) {
		for a := range c.Activities() {
			w.check(c, a, now)
		}
	}
	maps.DeleteFunc(w.told, func(_ model.Activity, t *trouble) bool {
		over := t.tick != w.tick
		if over {
			t.last.Stage, t.last.Now = Cleared, now
			w.reports = append(w.reports, t.last)
		}
		return over
	})
	slices.SortStableFunc(w.reports, func(a, b Report) int {
		if a.Stage == Cleared && b.Stage == Cleared {
			return cmp.Or(cmp.Compare(a.Comm.Generation, b.Comm.Generation), cmp.Compare(a.Start, b.Start))
		}
		return cmp.Compare(b.Stage/Cleared, a.Stage/Cleared)
	})
	return w.reports
}

// Doubtful lists the communicators of which nobody knows whether the last operation, launched as long ago as makes a
// stall, has been done: other ranks may know that it can't be. News tells whether one was not among them at the last
// call. It is nothing to tell of by itself.
func (w *Watch) Doubtful(now int64) (found []*model.Comm, news bool) {
	found = w.process.Doubtful(now)
	if len(found) == 0 && len(w.doubted) == 0 {
		return nil, false
	}
	doubted := make(map[*model.Comm]uint64, len(found))
	for _, c := range found {
		seq, known := w.doubted[c]
		news = news || !known || seq != c.Last.Seq
		doubted[c] = c.Last.Seq
	}
	w.doubted = doubted
	return found, news
}

func (w *Watch) check(c *model.Comm, a model.Activity, now int64) {
	p := a.Course()
	r := Report{
		Comm: c, Start: p.Start, Now: now, Phase: p.Phase, Wait: -1,
		Normal: time.Duration(w.process.Normal(a)),
	}
	o := c.InFlight()
	if act, ok := a.(*model.Act); ok {
		r.Act, r.ActSeq = act.Kind, act.Seq
		if act.Kind == tape.ActGroup && o != nil && o.Signature.Call.IsOperation() && w.told[a] == nil {
			return // the operation that the group makes now tells more
		}
	} else if !o.Signature.Call.IsOperation() {
		return // what an act does on the wire is no operation of the user's
	}
	if o != nil {
		r.runs(o)
	}
	p.Slow, p.Stalls = w.tell(a, &r)
}

// runs adds the operation that is in flight.
func (r *Report) runs(o *model.Op) {
	r.InFlight, r.Op, r.Seq, r.Algorithm, r.Wait, r.WaitSince = o, o.Signature, o.Seq, o.Algorithm, o.Wait, o.WaitSince
	r.Phase = cmp.Or(r.Phase, o.Phase)
}

// tell reports what was not said yet of an activity, and returns what is to be marked.
func (w *Watch) tell(of model.Activity, r *Report) (told bool, stalls int) {
	slow, stalled := w.process.Thresholds(of)
	age := w.process.Age(r.Start, r.Now) // a pause of the process doesn't count
	t := w.told[of]
	if t == nil {
		if age < slow {
			return false, 0
		}
		t = &trouble{}
		w.told[of] = t
		r.Stage, r.Threshold = Slow, time.Duration(slow)
		w.reports = append(w.reports, *r)
	} else {
		r.Stage, r.Count = t.last.Stage, t.last.Count
	}
	r.Threshold = time.Duration(stalled)
	if age >= stalled && r.Now >= t.next {
		r.Stage = Stalled
		r.Count++
		interval := min(r.Threshold, maxInterval)
		for i := 1; i < r.Count && interval < maxInterval; i++ {
			interval = min(2*interval, maxInterval)
		}
		t.next = r.Now + int64(interval)
		w.reports = append(w.reports, *r)
	}
	t.last, t.tick = *r, w.tick
	return true, r.Count
}

package stall

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxInterval bounds the interval between two reports of one stall, which starts at the threshold and doubles.
const maxInterval = time.Minute

// Watch finds stalls in a model. It belongs to the model's owner.
type Watch struct {
	process  *model.Process
	reported map[model.Activity]*reported
	tick     uint64 // counts the calls of Check
	reports  []Report
	doubted  map[*model.Comm]uint64 // result of the last Doubtful, with the last operations' numbers
}

// reported is an activity that was reported and has not ended.
type reported struct {
	last Report
	next int64  // the time of the next report
	tick uint64 // of the last Check that saw it
}

// New makes a Watch of a process, whose Limits are the thresholds.
func New(process *model.Process) *Watch {
	return &Watch{process: process, reported: make(map[model.Activity]*reported)}
}

// Check looks at the process at the time now of the tape's clock, just after the model was shown the in-flight table,
// and returns the reports that are due, Cleared ones first; they are valid until the next call. It marks the reported
// activities in the model. It does not allocate while nothing is slow.
func (w *Watch) Check(now int64) []Report {
	w.tick++
	w.reports = w.reports[:0]
	for _, c := range w.process.Late(now) {
		for a := range c.Activities() {
			w.check(c, a, now)
		}
	}
	maps.DeleteFunc(w.reported, func(_ model.Activity, r *reported) bool {
		over := r.tick != w.tick
		if over {
			r.last.Stage, r.last.Now = Cleared, now
			w.reports = append(w.reports, r.last)
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

// Doubtful lists the communicators whose last operation was launched so long ago that it has stalled if it isn't done,
// and whose device doesn't show whether it is done; other ranks may know. news tells whether one of them was not listed
// by the last call. Check doesn't report them.
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
		Comm: c, Start: p.Start, Since: p.Since(), Now: now, Phase: p.Phase, Wait: -1,
		Normal: time.Duration(w.process.Normal(a)),
	}
	o := c.InFlight()
	if act, ok := a.(*model.Act); ok {
		r.Act, r.ActSeq = act.Kind, act.Seq
		if act.Kind == tape.ActGroup && o != nil && o.Signature.Call.IsOperation() && w.reported[a] == nil {
			return // the report of the group's current operation says more
		}
	} else if !o.Signature.Call.IsOperation() {
		return // it is an act's own exchange, not an operation of the user
	} else if c.Slot != nil && c.Slot.Marked {
		r.Normal = 0 // for operations on devices, only the normal duration of their launches is known
	}
	if o != nil {
		r.runs(o)
	}
	p.Slow, p.Stalls = w.report(a, &r)
}

// runs adds the operation that is in flight.
func (r *Report) runs(o *model.Op) {
	r.InFlight, r.Op, r.Seq, r.Algorithm, r.Wait, r.WaitSince = o, o.Signature, o.Seq, o.Algorithm, o.Wait, o.WaitSince
	r.Phase = cmp.Or(r.Phase, o.Phase)
}

// report makes the reports of an activity that are due, and returns its marks for the model.
func (w *Watch) report(of model.Activity, r *Report) (isSlow bool, stalls int) {
	slow, stalled := w.process.Thresholds(of)
	age := w.process.Age(of.Course().Since(), r.Now) // a pause of the process doesn't count
	before := w.reported[of]
	if before == nil {
		if age < slow {
			return false, 0
		}
		before = &reported{}
		w.reported[of] = before
		r.Stage, r.Threshold = Slow, time.Duration(slow)
		w.reports = append(w.reports, *r)
	} else {
		r.Stage, r.Count = before.last.Stage, before.last.Count
	}
	r.Threshold = time.Duration(stalled)
	if age >= stalled && r.Now >= before.next {
		r.Stage = Stalled
		r.Count++
		interval := min(r.Threshold, maxInterval)
		for i := 1; i < r.Count && interval < maxInterval; i++ {
			interval = min(2*interval, maxInterval)
		}
		before.next = r.Now + int64(interval)
		w.reports = append(w.reports, *r)
	}
	before.last, before.tick = *r, w.tick
	return true, r.Count
}

package agent

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Bounds of what a notebook remembers.
const (
	maxComms    = 1 << 14          // communicators with something to remember
	maxActs     = 1 << 10          // open ones of a communicator: far more than it has, unless the ends of many were overwritten unread
	failureTime = 30 * time.Second // how long a failure is remembered when its communicator is gone
	waitWindow  = 20 * time.Second // over which waits are summed up, once or twice
	maxClosed   = 32               // communicators that ended in order
	closedTime  = 30 * time.Second // how long that is remembered
	longestWait = time.Second      // that is summed up of one wait: one that lasts is a stall, and no straggler's doing
)

// notebook remembers what the in-flight table doesn't show: open acts, failures, stalls, and for whom operations
// waited. It learns from the tape's events, of a living process or a dead one's. It is not safe for concurrent use.
type notebook struct {
	comms  map[uint32]*remembered // by generation
	closed []closed               // oldest first
}

// closed is a communicator that ended in order, and when.
type closed struct {
	id lifecycle.CommID
	at int64
}

// remembered is what is known of one communicator beside its slot.
type remembered struct {
	info    tape.CommInfo
	acts    map[actKey]*openAct
	failure *tape.LifeRecord
	stalled map[uint64]bool // operations, by their number

	wait      int32 // the rank that the running operation waits for; -1: none
	waitSince int64
	windows   [2]window // of waits: the current one, and the one before
}

type actKey struct {
	act tape.Act
	seq uint64
}

type openAct struct {
	start   int64
	phase   tape.Phase
	site    string
	stalled bool
}

// window sums up waits from start on.
type window struct {
	start int64
	waits map[int32]*waited
}

type waited struct {
	time time.Duration
	ops  int
}

func newNotebook() *notebook { return &notebook{comms: map[uint32]*remembered{}} }

// of is what is remembered of a communicator. It is nil only if there is no room.
func (n *notebook) of(generation uint32, info *tape.CommInfo) *remembered {
	r := n.comms[generation]
	if r == nil {
		if len(n.comms) >= maxComms {
			return nil
		}
		r = &remembered{wait: -1}
		n.comms[generation] = r
	}
	if !info.ID.IsZero() {
		r.info = *info
	}
	return r
}

// observe takes the tape's next event. failed says that a communicator failed with it.
func (n *notebook) observe(ev *tape.Event) (failed bool) {
	if !ev.IsLife {
		if ev.Op.Stage == tape.StageWait {
			if r := n.of(ev.Generation, &ev.Comm); r != nil {
				r.waits(ev.Op.Wait, ev.Op.Time)
			}
		}
		return false
	}
	l := &ev.Life
	switch {
	case l.Stage == tape.StageMisuse:
	case l.Act == tape.ActNone && l.Code != lifecycle.CodeOK:
		if r := n.of(ev.Generation, &ev.Comm); r != nil && r.failure == nil {
			failure := *l
			r.failure = &failure
			return true
		}
	case l.Act == tape.ActNone:
	case l.Stage == tape.StageEnd:
		r := n.comms[ev.Generation]
		if l.Act == tape.ActDestroy && l.Code == lifecycle.CodeOK && (r == nil || r.failure == nil) {
			n.close(ev.Comm.ID, l.Time)
		}
		if r == nil {
			return false
		}
		delete(r.acts, actKey{l.Act, l.Seq})
		r.passed(l)
		if (l.Act == tape.ActDestroy || l.Act == tape.ActAbort) && r.failure == nil {
			delete(n.comms, ev.Generation)
		}
	default:
		r := n.of(ev.Generation, &ev.Comm)
		if r == nil {
			return false
		}
		r.act(l)
	}
	return false
}

func (n *notebook) close(id lifecycle.CommID, now int64) {
	if len(n.closed) == maxClosed {
		n.closed = slices.Delete(n.closed, 0, 1)
	}
	n.closed = append(n.closed, closed{id, now})
}

// closedLately are the communicators that ended in order not long before now.
func (n *notebook) closedLately(now int64) []lifecycle.CommID {
	n.closed = slices.DeleteFunc(n.closed, func(c closed) bool { return now-c.at >= int64(closedTime) })
	ids := make([]lifecycle.CommID, len(n.closed))
	for i, c := range n.closed {
		ids[i] = c.id
	}
	return ids
}

// act remembers an act that began, or went on.
func (r *remembered) act(l *tape.LifeRecord) {
	key := actKey{l.Act, l.Seq}
	a := r.acts[key]
	if a == nil {
		if len(r.acts) >= maxActs {
			return
		}
		if r.acts == nil {
			r.acts = map[actKey]*openAct{}
		}
		a = &openAct{start: cmp.Or(l.Start, l.Time)}
		r.acts[key] = a
	}
	if l.Phase != tape.PhaseNone {
		a.phase = l.Phase
	}
	if a.site == "" && l.Site.File != "" {
		a.site = fmt.Sprintf("%s:%d", path.Base(l.Site.File), l.Site.Line)
	}
}

// passed forgets the groups whose end was overwritten before it was read. Groups of a communicator are made one after
// another: when one has ended well, those with lower numbers that began before it are over. (Groups with and without
// collectives are numbered apart, so that the number alone doesn't say it. One that failed may not have been made.)
func (r *remembered) passed(end *tape.LifeRecord) {
	if end.Act != tape.ActGroup || end.Code != lifecycle.CodeOK {
		return
	}
	for key, a := range r.acts {
		if key.act == tape.ActGroup && key.seq < end.Seq && a.start < end.Start {
			delete(r.acts, key)
		}
	}
}

// waits notes that the running operation waits for another rank from now on, -1 for none.
func (r *remembered) waits(rank int32, now int64) {
	if r.wait >= 0 && now > r.waitSince {
		w := r.window(now)
		sum := w.waits[r.wait]
		if sum == nil {
			sum = &waited{}
			w.waits[r.wait] = sum
		}
		sum.time += min(time.Duration(now-r.waitSince), longestWait)
		sum.ops++
	}
	r.wait, r.waitSince = rank, now
}

// window is the current one.
func (r *remembered) window(now int64) *window {
	w := &r.windows[0]
	if w.waits == nil || now-w.start >= int64(waitWindow) {
		r.windows[1] = *w
		*w = window{start: now, waits: map[int32]*waited{}}
	}
	return w
}

// report takes what stalls, and what does no longer. news says that it is worth a look at the job.
func (n *notebook) report(rep *stall.Report) (news bool) {
	if rep.Stage == stall.Slow || rep.Stage == stall.Cleared && rep.Count == 0 { // slow is not stalled
		return false
	}
	r := n.of(rep.Generation, &rep.Comm)
	if r == nil {
		return true
	}
	stalled := rep.Stage == stall.Stalled
	if rep.Act != tape.ActNone {
		a := r.acts[actKey{rep.Act, rep.ActSeq}]
		if a != nil {
			a.stalled = stalled
		}
		return true
	}
	if !stalled {
		delete(r.stalled, rep.Seq)
		return true
	}
	if r.stalled == nil {
		r.stalled = map[uint64]bool{}
	}
	r.stalled[rep.Seq] = true
	return true
}

// stuck are communicators in which something takes too long, maxAbout at most.
func (n *notebook) stuck() []lifecycle.CommID {
	var ids []lifecycle.CommID
	for _, generation := range slices.Sorted(maps.Keys(n.comms)) { // the first ones, if there are too many
		r := n.comms[generation]
		acts := slices.ContainsFunc(slices.Collect(maps.Values(r.acts)), func(a *openAct) bool { return a.stalled })
		if (acts || len(r.stalled) > 0) && len(ids) < maxAbout {
			ids = append(ids, r.info.ID)
		}
	}
	return ids
}

// slots are the process's ranks, as a note has them, at the time now of the tape's clock; table is the in-flight table.
func (n *notebook) slots(table []tape.Slot, now int64) []verdict.Slot {
	slots := make([]verdict.Slot, 0, len(table))
	live := make(map[uint32]bool, len(table))
	for i := range table {
		s := verdict.SlotOf(&table[i], now)
		generation := table[i].Generation
		live[generation] = true
		if r := n.comms[generation]; r != nil {
			r.complete(&s, now)
		}
		slots = append(slots, s)
	}
	n.prune(live, now)
	for _, generation := range slices.Sorted(maps.Keys(n.comms)) {
		if live[generation] {
			continue
		}
		r := n.comms[generation]
		slots = append(slots, verdict.Slot{
			Comm: r.info.ID, Parent: r.info.Parent, Name: r.info.Name, Rank: r.info.Rank, Size: r.info.Size, Root: generation,
			State: lifecycle.StateFailed, Wait: -1, Failure: r.failed(now),
		})
	}
	return slots
}

// prune forgets the communicators that are gone, but for a while those that failed: their program may have ended them
// before anybody could ask.
func (n *notebook) prune(live map[uint32]bool, now int64) {
	maps.DeleteFunc(n.comms, func(generation uint32, r *remembered) bool {
		return !live[generation] && (r.failure == nil || now-r.failure.Time >= int64(failureTime))
	})
}

// complete adds to a slot what only the notebook knows.
func (r *remembered) complete(s *verdict.Slot, now int64) {
	s.Stalled = s.InFlight > 0 && r.stalled[s.Seq]
	for key, a := range r.acts {
		s.Acts = append(s.Acts, verdict.OpenAct{
			Act: key.act, Seq: key.seq, Phase: a.phase, Age: time.Duration(now - a.start), Stalled: a.stalled, Site: a.site,
		})
	}
	slices.SortFunc(s.Acts, func(a, b verdict.OpenAct) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.Act, b.Act), cmp.Compare(a.Seq, b.Seq))
	})
	if r.failure != nil {
		s.Failure = r.failed(now)
	}
	s.Waited, s.Window = r.waited(now)
}

func (r *remembered) failed(now int64) *verdict.Failure {
	f := r.failure
	return &verdict.Failure{Code: f.Code, Call: f.Call, Seq: f.Seq, Peer: int(f.Peer), Text: f.Text, Age: time.Duration(now - f.Time)}
}

// waited sums up both windows, and says over how long.
func (r *remembered) waited(now int64) ([]verdict.Waited, time.Duration) {
	if r.windows[0].waits == nil {
		return nil, 0
	}
	from := r.windows[0].start
	if r.windows[1].waits != nil && now-r.windows[0].start < int64(waitWindow) {
		from = r.windows[1].start
	}
	sums := map[int32]waited{}
	for i := range r.windows {
		if r.windows[i].waits == nil || r.windows[i].start < from {
			continue
		}
		for rank, w := range r.windows[i].waits {
			sum := sums[rank]
			sum.time += w.time
			sum.ops += w.ops
			sums[rank] = sum
		}
	}
	list := make([]verdict.Waited, 0, len(sums))
	for rank, w := range sums {
		list = append(list, verdict.Waited{Rank: int(rank), Time: w.time, Ops: w.ops})
	}
	slices.SortFunc(list, func(a, b verdict.Waited) int { return cmp.Compare(a.Rank, b.Rank) })
	return list, time.Duration(now - from)
}

// heldUp tells whether operations wait for one rank for so much of their time that the job is worth a look.
func (n *notebook) heldUp(now int64) bool {
	for _, r := range n.comms {
		list, over := r.waited(now)
		for _, w := range list {
			if over >= waitWindow/2 && w.Ops >= heldOps && w.Time >= over/heldShare {
				return true
			}
		}
	}
	return false
}

// One rank is worth a look that others wait for over a fifth of the time in eight operations; see package verdict.
const (
	heldOps   = 8
	heldShare = 5
)

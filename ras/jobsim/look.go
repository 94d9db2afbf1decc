package jobsim

import (
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Slots appends a member's in-flight table, as it is now, and as it was last if the process is stopped or dead.
func (m *Model) Slots(member int, buf []tape.Slot) []tape.Slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	for _, r := range m.member[member] {
		for _, s := range r.seats {
			slot := s.slot
			if slot.Launched != slot.Completed {
				if slot.Wait = s.waitsFor(); slot.Wait >= 0 {
					slot.WaitSince = slot.OpStart
				}
			}
			buf = append(buf, slot)
		}
	}
	return buf
}

// Events gives the tape's events of a member since the last time: of each operation that ended, whom it waited for, and
// its end. The event is the callee's for the call alone.
func (m *Model) Events(member int, observe func(*tape.Event)) {
	m.mu.Lock()
	m.advance()
	var all []ended
	for _, r := range m.member[member] {
		all = append(all, r.ended...)
		r.ended = r.ended[:0]
	}
	m.mu.Unlock()
	for i := range all {
		e := &all[i]
		ev := tape.Event{Comm: e.seat.slot.CommInfo, Slot: -1, Generation: e.seat.slot.Generation}
		op := tape.OpRecord{Seq: e.seq, Signature: e.sig, Phase: tape.PhaseTransfer, Start: e.start, Wait: -1}
		if e.last != ev.Comm.Rank {
			ev.Op = op
			ev.Op.Stage, ev.Op.Time, ev.Op.Wait = tape.StageWait, e.start, int32(e.last)
			observe(&ev)
			ev.Op.Time, ev.Op.Wait = e.came, -1
			observe(&ev)
		}
		ev.Op = op
		ev.Op.Stage, ev.Op.Time = tape.StageEnd, e.end
		observe(&ev)
	}
}

// Oldest is when the operation began that has been in flight for longest on a rank that runs; 0 if there is none.
func (m *Model) Oldest() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	var oldest int64
	for _, r := range m.ranks {
		for _, s := range r.seats {
			if !r.dead && !r.frozen && s.slot.Launched != s.slot.Completed && (oldest == 0 || s.slot.OpStart < oldest) {
				oldest = s.slot.OpStart
			}
		}
	}
	return oldest
}

// Steps is how many steps of the current start the slowest of the living ranks has made.
func (m *Model) Steps() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	var steps uint64
	first := true
	for _, r := range m.ranks {
		if n := r.seats[world].slot.Completed; !r.dead && (first || n < steps) {
			steps, first = n, false
		}
	}
	return steps
}

// Size is how many ranks the job has, with the dead ones.
func (m *Model) Size() int { return len(m.ranks) }

// Kill ends a member's ranks for good.
func (m *Model) Kill(member int) {
	m.each(member, func(r *rank, _ int64) { r.dead = true })
}

// Stop freezes a member's ranks.
func (m *Model) Stop(member int) {
	m.each(member, func(r *rank, _ int64) { r.frozen = true })
}

// Continue lets them run again: they see what ended meanwhile.
func (m *Model) Continue(member int) {
	m.each(member, func(r *rank, now int64) {
		r.frozen = false
		m.resume(r, now)
		for _, s := range r.seats {
			if s.done > 0 {
				s.done = 0
				m.finish(s, now, s.slot.Rank, now)
			}
		}
	})
}

// Sleep keeps a rank from its next call until Wake.
func (m *Model) Sleep(id int) { m.one(id, func(r *rank, _ int64) { r.asleep = true }) }

// Wake lets a rank that sleeps go on.
func (m *Model) Wake(id int) {
	m.one(id, func(r *rank, now int64) {
		r.asleep = false
		m.resume(r, now)
	})
}

// Slow makes a rank compute for so much longer than the others before each call.
func (m *Model) Slow(id int, by time.Duration) {
	m.one(id, func(r *rank, _ int64) { r.extra = int64(by) })
}

// Odd lets a rank make another call of the world than the others: an all-reduce of twice the size.
func (m *Model) Odd(id int) { m.one(id, func(r *rank, _ int64) { r.odd = true }) }

// Swap lets a rank call the world's all-reduce before the data-parallel one, as no other does.
func (m *Model) Swap(id int) { m.one(id, func(r *rank, _ int64) { r.swap = true }) }

// Part says which members the network lets exchange data: those of one part.
func (m *Model) Part(part func(member int) int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advance()
	m.parted = part
	held := m.held
	m.held = nil
	for _, c := range held {
		m.end(c, now)
	}
}

// Restart ends all communicators and lets the living ranks begin anew.
func (m *Model) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start(m.advance())
}

// resume lets a rank go on that would have before, if nothing keeps it any more.
func (m *Model) resume(r *rank, now int64) {
	if r.due && !r.frozen && !r.asleep {
		r.due = false
		m.push(now, r, nil)
	}
}

func (m *Model) one(id int, f func(r *rank, now int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.ranks[id], m.advance())
}

func (m *Model) each(member int, f func(r *rank, now int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.advance()
	for _, r := range m.member[member] {
		f(r, now)
	}
}

package verdict

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// growing is the verdict on a grow that all ranks of the parent have entered: it waits for the joining ranks, unless
// all have come. If the parent's ranks are in the init of the larger communicator, the verdict on that says which are
// missing.
func (w *walk) growing(m *meeting) (Verdict, bool) {
	joining, size := 0, 0
	for _, a := range w.actors {
		for _, s := range a.slots {
			switch {
			case s.open(tape.ActInit) == nil:
			case s.Parent == m.key.comm:
				return Verdict{}, false
			case s.joins():
				joining, size = joining+1, max(size, s.Size)
			}
		}
	}
	if joining > 0 && joining >= size-m.slot.Size {
		return Verdict{}, false
	}
	v := m.verdict(NotJoined, Likely, nil, waits(m))
	v.Text = say("%s waits for joining ranks that have not arrived", m.text())
	v.Text.add("%s", waiting(v.Victims))
	v.Evidence = append(v.Evidence, attendance(m))
	if joining > 0 {
		v.Evidence = append(v.Evidence, say("%d of %d ranks are joining it", joining, size-m.slot.Size))
	}
	return v, true
}

// stuck is the verdict on a meeting that all ranks have entered.
func (w *walk) stuck(m *meeting) (Verdict, bool) {
	if m.engine != nil {
		return w.engineFailed(m)
	}
	if m.key.kind == leaving {
		v, ok := w.openGroups(m)
		if !ok && !slices.ContainsFunc(m.present, (*participant).grouped) {
			w.still = append(w.still, m)
		}
		return v, ok
	}
	if m.slot.Op.Call == lifecycle.CallGrow {
		return w.growing(m)
	}
	if v, ok := w.madeAnother(m); ok {
		return v, true
	}
	if v, ok := w.openGroups(m); ok {
		return v, true
	}
	if v, ok := w.unequalSizes(m); ok {
		return v, true
	}
	if m.unlaunched() && m.age >= missingTime {
		w.still = append(w.still, m)
		return Verdict{}, false
	}
	var worst *participant
	onStream := func(p *participant) bool { return p.slot.Phase == tape.PhaseStream }
	// It is not known what some ranks wait for, or ranks that wait for data or credit may really wait for a device.
	mixed := m.key.kind == exchange || slices.ContainsFunc(m.present, onStream)
	if mixed {
		worst = unsent(m)
	}
	if mixed && worst == nil {
		// One verdict covers all messages: stalledMessages.
		if m.key.kind != exchange && m.age >= m.undecided(m.members()) {
			w.still = append(w.still, m)
		}
		return Verdict{}, false
	}
	for _, p := range m.present {
		switch {
		case onStream(p) && worst != nil:
		case p.slot.Wait < 0:
			return Verdict{}, false // it waits for no rank: slow, perhaps, but not stuck
		case p.slot.WaitAge < m.age/2 && m.age < missingTime:
			return Verdict{}, false // bytes have come a short while ago
		case worst == nil || !mixed && p.slot.WaitAge > worst.slot.WaitAge:
			worst = p
		}
	}
	if worst == nil {
		return Verdict{}, false
	}
	for p := range m.members() {
		if passed(m, p.slot) && p.slot.Age < m.age/2 && m.age < missingTime {
			return Verdict{}, false // a rank completed it a short while ago: newer notes say so of the others
		}
	}
	peer := m.at(worst.slot.Wait)
	if peer == nil {
		return Verdict{}, false
	}
	from, to := rankOf(peer.actor, m.key.comm), rankOf(worst.actor, m.key.comm)
	if sends(worst) {
		from, to = to, from
	}
	way := w.route(m.slot, from, to)
	if sends(worst) && from.Host == to.Host {
		way = "the network of host " + from.Host // NCCL can be told that one host is several
	}
	if waited := worst.slot.WaitAge; w.stoppedOn(from.Host, waited) || w.stoppedOn(to.Host, waited) {
		return Verdict{}, false
	}
	v := m.verdict(Transport, Likely, []Rank{from, to}, waits(m))
	v.Age = Age(worst.slot.WaitAge)
	both := say("all ranks are in %s", m.text())
	if m.key.kind == exchange {
		both = say("both have called for their messages on %s", commText(m.slot))
	}
	v.Text = say("%s, and no data has moved from %s to %s for %s, over %s",
		both, from.in(), to.in(), Age(worst.slot.WaitAge), way)
	v.Text.add("%s", waiting(v.Victims))
	v.Evidence = append(v.Evidence, m.waiting()...)
	if peer.slot.Wait == worst.slot.Rank || m.key.kind != exchange &&
		!slices.ContainsFunc(m.present, func(p *participant) bool { return p.slot == peer.slot }) {
		v.Confidence = Certain
	}
	return v, true
}

// standstills are the verdicts on calls that all ranks have made and that don't go on, such as a collective whose data
// does not move, if nothing else is wrong.
func (w *walk) standstills() (verdicts []Verdict) {
	for _, m := range w.still {
		v := w.unknown(m, m.called())
		v.Evidence = slices.Concat(v.Evidence, m.unmatched(), m.waiting())
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// called says how far a meeting is that all ranks have called.
func (m *meeting) called() string {
	if m.key.kind == leaving {
		return "all ranks have called it"
	}
	if m.unlaunched() {
		return "all ranks have called it, and none has launched it: their groups have not ended, or NCCL is still " +
			"at it"
	}
	for p := range m.members() {
		if p.slot.Captured > 0 {
			return "all ranks have called it, and " + capturedBy(rankOf(p.actor, m.key.comm), p.slot).String()
		}
	}
	return "all ranks have launched it, and " + m.standstill()
}

// capturedBy says why it isn't seen which operations of a communicator a rank has launched.
func capturedBy(r Rank, s *Slot) Text {
	return say("%s captured operations of %s in CUDA graphs, whose replays are not seen", r, commText(s))
}

// leastRate is the rate, in bytes per microsecond, below which data counts as not moving.
const leastRate = 100

// undecided is the age up to which a meeting that all ranks have launched may still complete: the devices of some may
// have other work before it. If all devices have come to it, it is how long its data may take.
func (m *meeting) undecided(ranks iter.Seq[*participant]) time.Duration {
	if !onDevices(ranks) {
		return missingTime
	}
	messages := 1
	if m.key.kind == exchange {
		messages = max(len(m.g.launch(m.slot)), 1)
	}
	return min(missingTime, time.Duration(messages)*time.Duration(m.slot.Op.Bytes/leastRate)*time.Microsecond)
}

// onDevices reports whether what ranks launched on a communicator has come to their devices, for all ranks that have
// not completed it and have not ended the communicator.
func onDevices(ranks iter.Seq[*participant]) bool {
	for p := range ranks {
		over := p.slot.Left != nil || p.actor.gone()
		if !over && (p.slot.Unproven || p.slot.InFlight > 0 && !p.slot.Reached) {
			return false
		}
	}
	return true
}

// standstill says what may hold up a meeting that all ranks have launched.
func (m *meeting) standstill() string {
	if onDevices(m.members()) {
		return "their devices have come to it: its data does not move, or there is no room for it on a device"
	}
	return "the device has not done it: what was launched on a stream before it may go on, or its data does not move"
}

// stoppedOn tells whether a process of a host has been stopped for at least so long: the whole host may stand still,
// and nothing is wrong with its connections.
func (g *graph) stoppedOn(host string, age time.Duration) bool {
	return slices.ContainsFunc(g.notes, func(n *Note) bool {
		return n.Fate == Stopped && n.Host == host && n.FateAge+skew >= age
	})
}

// waiting says for which rank each rank has waited.
func (m *meeting) waiting() (evidence []Text) {
	for _, p := range m.present {
		if p.slot.Wait >= 0 && len(evidence) < maxEvidence {
			evidence = append(evidence, say("%s has waited for %s for %s%s",
				rankOf(p.actor, m.key.comm), m.rank(p.slot.Wait), Age(p.slot.WaitAge), blockedBy(p.slot.Phase)))
		}
	}
	return evidence
}

// unsent is the rank whose data the network has not taken for the longest time; nil if there is none.
func unsent(m *meeting) (worst *participant) {
	for _, p := range m.present {
		if p.slot.Phase == tape.PhaseNetwork && p.slot.Wait >= 0 &&
			(worst == nil || p.slot.WaitAge > worst.slot.WaitAge) {
			worst = p
		}
	}
	return worst
}

// sends tells whether a rank waits to send, and not to receive.
func sends(p *participant) bool { return blockedBy(p.slot.Phase) != "" }

// engineFailed is the verdict on a meeting that all ranks had entered and that failed, as the engine says.
func (w *walk) engineFailed(m *meeting) (Verdict, bool) {
	f := m.engine
	if !f.unintended() || f.is(lifecycle.CodeAbandoned, lifecycle.CodePeerAborted, lifecycle.CodeCanceled) {
		return Verdict{}, false
	}
	v := w.unknown(m, f.Text)
	v.Text = say("%s failed: %s", m.text(), f.Text)
	return v, true
}

// connectionLost tells whether a meeting failed because a connection between two of its ranks broke.
func (m *meeting) connectionLost() bool {
	return m.engine.is(lifecycle.CodeUnreachable) && len(m.missing) == 0 && m.key.kind != broken &&
		m.at(m.engine.Peer) != nil
}

// connectionsLost is the one verdict on all connections that broke, as the network is the one cause. It names the
// first.
func (w *walk) connectionsLost(failed []*meeting) Verdict {
	slices.SortStableFunc(failed, func(a, b *meeting) int { return cmp.Compare(b.until, a.until) })
	var v Verdict
	var ranks []Rank
	for i, m := range failed {
		at := m.present[slices.IndexFunc(m.present, func(p *participant) bool { return p.slot.Failure == m.engine })]
		from, to := w.rankAt(m.slot, m.engine.Peer), rankOf(at.actor, m.key.comm)
		ranks = append(ranks, from, to)
		more := ""
		if i == 0 {
			v = m.verdict(Transport, Likely, []Rank{from, to}, nil)
			if n := len(failed) - 1; n > 0 {
				more = fmt.Sprintf(", and %d more", n)
			}
		}
		text := say("the connection between %s and %s%s, over %s, broke in %s: both ranks were in it", from.in(),
			to.in(), more, w.route(m.slot, from, to), m.text())
		if i == 0 {
			v.Text = text
		} else if i <= maxEvidence {
			v.Evidence = append(v.Evidence, text)
		}
	}
	slices.SortFunc(ranks, byRank)
	v.Culprits = slices.CompactFunc(ranks, Rank.Same)
	v.Victims = waits(failed...)
	v.Text.add("%s", waiting(v.Victims))
	return v
}

// route is the way of data from one rank to another of the slot's communicator.
func (g *graph) route(s *Slot, from, to Rank) string {
	if from.Host == "" || to.Host == "" {
		return "an unknown route"
	}
	carrier := g.carrier(s, from.Comm, to.Comm)
	if carrier == nil && from.Host == to.Host {
		return "shared memory on host " + from.Host
	}
	text := fmt.Sprintf("TCP from host %s to host %s", from.Host, to.Host)
	if carrier == nil {
		return text
	}
	rail := g.ranks[commRank{s.Comm, to.Comm}].slot.Local
	return fmt.Sprintf("%s, on rail %d and through the proxy of %s", text, rail, rankOf(carrier.actor, s.Comm))
}

// carrier is the rank whose proxy carries the data from one rank to another of the slot's communicator; nil if that is
// not known, if they share a node, or if PXN is off.
func (g *graph) carrier(s *Slot, from, to int) *participant {
	sender, receiver := g.ranks[commRank{s.Comm, from}], g.ranks[commRank{s.Comm, to}]
	if sender == nil || receiver == nil || sender.slot.Locals <= 0 || receiver.slot.Locals <= 0 ||
		sender.slot.Node == receiver.slot.Node {
		return nil
	}
	for p := range g.members(s) {
		if p.slot.Node == sender.slot.Node && p.slot.Local == receiver.slot.Local%sender.slot.Locals {
			return p
		}
	}
	return nil
}

// blockedBy says what keeps a rank from sending; empty if the phase of its operation is none in which it waits to send.
func blockedBy(phase tape.Phase) string {
	switch phase {
	case tape.PhaseCredit:
		return ", which takes no more of what it was sent"
	case tape.PhaseNetwork:
		return ": the network takes no more"
	case tape.PhasePool:
		return ": no operation is free in the proxy's pool"
	default:
		return ""
	}
}

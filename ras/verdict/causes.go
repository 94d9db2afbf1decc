package verdict

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxEvidence is how many ranks' waits a verdict tells one by one.
const maxEvidence = 8

// fates are the verdicts on processes that can't go on, whether somebody waits for them already or not. Where all
// processes of a host are out of reach, that is the host's fate, and one verdict; and where those of one host see no other, that
// is one, too: they are cut off, or all others are. Who ended or is stopped has one of its own: others of its host that follow
// are further causes, and take nothing back.
func (w *walk) fates() []Verdict {
	type group struct {
		fate Fate
		of   string // a member, or the host, where the whole host is concerned
	}
	processes, lost := map[string]int{}, map[string]int{} // by host
	for _, n := range w.g.notes {
		processes[n.Host]++
		if n.Fate == Unreachable {
			lost[n.Host]++
		}
	}
	alone := w.alone()
	var order []group
	found := map[group][]*Note{}
	for i := range w.g.notes {
		n := &w.g.notes[i]
		if n.Fate == Alive {
			continue
		}
		key := group{n.Fate, n.Member}
		if n.Fate == Unreachable && n.Host != "" && processes[n.Host] > 1 && processes[n.Host] == lost[n.Host] {
			key.of = "host " + n.Host
		}
		if n.Fate == Unreachable && alone {
			key.of = "all other hosts"
		}
		if found[key] == nil {
			order = append(order, key)
		}
		found[key] = append(found[key], n)
	}
	verdicts := make([]Verdict, 0, len(order))
	for _, key := range order {
		verdicts = append(verdicts, w.fate(key.fate, found[key]))
	}
	return verdicts
}

// fate is the verdict on processes that share one.
func (w *walk) fate(fate Fate, notes []*Note) Verdict {
	v := Verdict{Reason: fate.reason(), Confidence: Certain}
	var ends []*node
	guessed := false
	for _, n := range notes {
		v.Age = max(v.Age, Age(n.FateAge))
		actors := 0
		for _, a := range w.g.actors {
			if a.note != n {
				continue
			}
			actors++
			if end := w.actors[a]; end != nil {
				ends = append(ends, end)
				guessed = guessed || slices.ContainsFunc(end.in, func(in *node) bool { return in.meeting.guessed })
			}
		}
		if actors > 1 { // a process with several ranks: its slots tell which
			for _, a := range w.g.actors {
				if a.note == n {
					v.Culprits = append(v.Culprits, rankOf(a, a.slots[0].Comm))
				}
			}
			continue
		}
		v.Culprits = append(v.Culprits, Rank{Job: n.Rank, Comm: -1, Member: n.Member, Host: n.Host, PID: n.PID})
	}
	if fate == Dead || fate == Unreachable {
		v.Comms = commsOf(notes)
	}
	v.Victims = w.waitsFor(ends, func(a *actor) bool { return slices.Contains(notes, a.note) })
	v.locate()
	if guessed {
		v.Confidence = Likely
	}
	who, all := ranksText(v.Culprits), ""
	if hosts := hostsOf(notes); len(notes) > 1 && len(hosts) > 1 {
		all = fmt.Sprintf(", all of %d other hosts,", len(hosts))
	} else if len(notes) > 1 {
		all = fmt.Sprintf(", all of host %s,", notes[0].Host)
	}
	verb := map[Fate]string{Dead: "ended", Stopped: "stopped", Unreachable: "stopped answering"}[fate]
	v.Text = fmt.Sprintf("%s%s %s %s ago", who, all, verb, v.Age)
	if fate == Dead && v.Age == 0 {
		v.Text = fmt.Sprintf("%s%s has ended", who, all)
	}
	var why []string
	for _, n := range notes {
		if n.Cause != "" && !slices.Contains(why, n.Cause) {
			why = append(why, n.Cause)
		}
	}
	if len(why) > 0 {
		v.Text += ": " + strings.Join(why, "; ")
	}
	v.Text += waiting(v.Victims)
	if fate == Unreachable {
		aside, seen := w.side()
		v.Text += aside
		v.Evidence = append(v.Evidence, seen)
	}
	for _, n := range notes {
		v.Evidence = append(v.Evidence, lastWords(n)...)
	}
	return v
}

// alone tells whether those who run are on one host, and others, of other hosts, are out of reach: it may be this one that is cut off.
func (w *walk) alone() bool {
	var here, there []*Note
	for i := range w.g.notes {
		switch n := &w.g.notes[i]; n.Fate {
		case Unreachable:
			there = append(there, n)
		case Alive, Stopped:
			here = append(here, n)
		case Dead:
		}
	}
	own, others := hostsOf(here), hostsOf(there)
	return len(own) == 1 && own[0] != "" && !slices.Contains(others, own[0]) && !slices.Contains(others, "")
}

// hostsOf are the hosts of processes, each once, in order.
func hostsOf(notes []*Note) []string {
	hosts := make([]string, 0, len(notes))
	for _, n := range notes {
		hosts = append(hosts, n.Host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// side says from where it is seen that others are out of reach: who is cut off can't know it, and says the same of the rest.
// Where no more than half of the processes are left, that belongs to the sentence.
func (w *walk) side() (aside, seen string) {
	var hosts []string
	here, all := 0, 0
	for i := range w.g.notes {
		n := &w.g.notes[i]
		if n.Fate == Dead {
			continue
		}
		all++
		if n.Fate == Unreachable {
			continue
		}
		here++
		if n.Host != "" && !slices.Contains(hosts, n.Host) {
			hosts = append(hosts, n.Host)
		}
	}
	slices.Sort(hosts)
	from := "here"
	if len(hosts) > 0 {
		from = hosts[0]
	}
	if more := len(hosts) - 1; more > 0 {
		from += fmt.Sprintf(" and %d more", more)
	}
	seen = fmt.Sprintf("seen from %s, with %d of %d processes: if the network is parted, the others say the same of these", from, here, all)
	if 2*here <= all {
		aside = fmt.Sprintf("; only %d of %d processes answer: those of %s may be the ones that are cut off", here, all, from)
	}
	return aside, seen
}

// maxComms is how many communicators of its culprits a verdict has: more than any job has one process in.
const maxComms = 64

// commsOf are the communicators that processes are in.
func commsOf(notes []*Note) []lifecycle.CommID {
	var comms []lifecycle.CommID
	for _, n := range notes {
		for i := range n.Slots {
			comms = append(comms, n.Slots[i].Comm)
		}
	}
	slices.SortFunc(comms, func(a, b lifecycle.CommID) int { return bytes.Compare(a[:], b[:]) })
	comms = slices.Compact(comms)
	return comms[:min(len(comms), maxComms)]
}

// lastWords is what a process was in, by its tape.
func lastWords(n *Note) []string {
	var words []string
	for i := range n.Slots {
		s := &n.Slots[i]
		if s.InFlight > 0 {
			words = append(words, fmt.Sprintf("%s was in %s", rankName(n, s), callText(s.Op.Call.String(), s.Seq, s)))
		}
		for _, act := range s.Acts {
			words = append(words, fmt.Sprintf("%s was in %s of %s", rankName(n, s), act.Act, commText(s)))
		}
	}
	if len(n.Slots) == 0 {
		words = append(words, fmt.Sprintf("nothing is known of what %s was in: nobody could read its tape", n.Member))
	}
	return words
}

// roots are the verdicts on where the walk ended without coming back.
func (w *walk) roots() []Verdict {
	var verdicts []Verdict
	together := map[string][]*node{} // ranks that have not come to the same meeting have one verdict
	var order []string
	for _, n := range w.seen {
		switch {
		case n.meeting != nil:
			if v, ok := w.meetingVerdict(n); ok {
				verdicts = append(verdicts, v)
			}
		case n.actor.note.Fate == Alive && (len(n.actor.in) == 0 || n.astray):
			where := w.whereMissed(n)
			key := fmt.Sprint(w.g.reasonOf(n.actor, where.meeting), where.meeting.key)
			if together[key] == nil {
				order = append(order, key)
			}
			together[key] = append(together[key], n)
		}
	}
	for _, key := range order {
		verdicts = append(verdicts, w.absentees(together[key]))
	}
	return verdicts
}

// whereMissed is the meeting that has waited longest for an actor.
func (w *walk) whereMissed(n *node) *node {
	return slices.MaxFunc(n.in, func(a, b *node) int { return cmp.Compare(a.meeting.age, b.meeting.age) })
}

// reasonOf is why an actor that is alive, and in no meeting, holds one up.
func (g *graph) reasonOf(a *actor, m *meeting) Reason {
	switch {
	case slices.ContainsFunc(a.slots, func(s *Slot) bool { return blockedByGroup(s, m.age) }):
		return UnfinishedGroup
	case m.key.kind == joining, m.slot.Op.Call == lifecycle.CallSplit, m.slot.Op.Call == lifecycle.CallShrink,
		m.slot.Op.Call == lifecycle.CallGrow:
		return NotJoined
	default:
		return NotEntered
	}
}

// blockedByGroup tells whether a communicator has had a group job open for about as long as others wait.
func blockedByGroup(s *Slot, waited time.Duration) bool {
	group := s.open(tape.ActGroup)
	return group != nil && group.Age >= waited/2 && s.InFlight == 0
}

// absentees is the verdict on ranks that have not come to a meeting.
func (w *walk) absentees(nodes []*node) Verdict {
	m := w.whereMissed(nodes[0]).meeting
	v := Verdict{Reason: w.g.reasonOf(nodes[0].actor, m), Confidence: Certain}
	culprits := map[*actor]bool{}
	for _, n := range nodes {
		culprits[n.actor] = true
		v.Culprits = append(v.Culprits, rankOf(n.actor, m.key.comm))
	}
	slices.SortFunc(v.Culprits, byRank)
	v.Victims = w.waitsFor(nodes, func(a *actor) bool { return culprits[a] })
	v.at(m)
	who, have := ranksText(v.Culprits), "have"
	if len(v.Culprits) == 1 {
		have = "has"
	}
	switch v.Reason {
	case UnfinishedGroup:
		group := openGroup(nodes[0].actor, m.age)
		v.Age = Age(group.Age)
		v.Text = fmt.Sprintf("%s %s a group job that nobody completes, since %s: call Wait or AsyncError; until then it does not come to %s",
			who, have, Age(group.Age), m.text())
	case NotJoined:
		v.Text = fmt.Sprintf("%s %s not joined %s", who, have, m.text())
	default:
		v.Text = fmt.Sprintf("%s %s not %s", who, have, m.entered(v.Culprits[0]))
	}
	if len(nodes) == 1 && v.Reason != UnfinishedGroup {
		v.Text += lastCall(nodes[0].actor)
	}
	v.Text += waiting(v.Victims)
	if m.guessed {
		v.Confidence = Likely
	}
	for _, n := range nodes {
		a := n.actor
		if n.astray {
			v.Confidence = min(v.Confidence, Possible)
			v.Evidence = append(v.Evidence, fmt.Sprintf("%s makes other calls all the time, and not this one", rankOf(a, m.key.comm)))
		}
		if a.note.Where != "" {
			v.Evidence = append(v.Evidence, fmt.Sprintf("%s is outside of Carillon: %s", rankOf(a, m.key.comm), a.note.Where))
		}
	}
	if here, size := len(m.present), m.slot.Size; v.Reason == NotEntered && here < size-here {
		v.Evidence = append(v.Evidence, fmt.Sprintf("only %d of %d ranks are in the call: it may be one call too many", here, size))
		v.Confidence = min(v.Confidence, Likely)
	}
	v.Evidence = append(v.Evidence, attendance(m)...)
	return v
}

func openGroup(a *actor, waited time.Duration) *OpenAct {
	for _, s := range a.slots {
		if blockedByGroup(s, waited) {
			return s.open(tape.ActGroup)
		}
	}
	return nil
}

// meetingVerdict is the verdict on a meeting that waits for nobody that is known; false if there is none to give.
func (w *walk) meetingVerdict(n *node) (Verdict, bool) {
	m := n.meeting
	switch {
	case m.differ:
		return w.mismatch(n), true
	case len(m.absent) > 0 && m.key.kind == joining:
		return w.neverSeen(n), true
	case len(m.absent) > 0:
		return w.unknown(n, fmt.Sprintf("of %s nothing is known", absentText(m))), true
	case len(m.missing) == 0 && m.key.kind != exchange && m.stalled:
		return w.stuck(n)
	default:
		return Verdict{}, false
	}
}

// neverSeen is the verdict on ranks of a communicator that begins, whom no process has as its own.
func (w *walk) neverSeen(n *node) Verdict {
	m := n.meeting
	v := Verdict{Reason: NotJoined, Confidence: Likely}
	for _, r := range m.absent {
		v.Culprits = append(v.Culprits, Rank{Job: -1, Comm: r})
	}
	v.Victims = w.waitsFor([]*node{n}, func(*actor) bool { return false })
	v.at(m)
	v.Text = fmt.Sprintf("%s never arrived at %s", ranksText(v.Culprits), m.text()) + waiting(v.Victims)
	v.Evidence = append(attendance(m), "no process that answers has these ranks")
	return v
}

func (w *walk) unknown(n *node, why string) Verdict {
	m := n.meeting
	v := Verdict{Reason: Unknown, Confidence: Possible}
	v.Victims = w.waitsFor([]*node{n}, func(*actor) bool { return false })
	v.at(m)
	v.Text = m.text() + " does not end, and why is not known: " + why
	v.Evidence = attendance(m)
	return v
}

// mismatch is the verdict on ranks that made different calls.
func (w *walk) mismatch(n *node) Verdict {
	m := n.meeting
	calls := map[tape.Signature][]*place{}
	var order []tape.Signature
	for _, p := range m.present {
		sig := agreed(p.slot.Op)
		if calls[sig] == nil {
			order = append(order, sig)
		}
		calls[sig] = append(calls[sig], p)
	}
	slices.SortStableFunc(order, func(a, b tape.Signature) int { return cmp.Compare(len(calls[b]), len(calls[a])) }) // the majority first
	v := Verdict{Reason: Mismatch, Confidence: Certain}
	culprits := map[*actor]bool{}
	most := calls[order[0]]
	decided := len(most) > len(calls[order[1]])
	var says []string
	for i, sig := range order {
		var ranks []Rank
		for _, p := range calls[sig] {
			r := rankOf(p.actor, m.key.comm)
			ranks = append(ranks, r)
			if decided && i > 0 {
				culprits[p.actor] = true
				v.Culprits = append(v.Culprits, r)
			}
		}
		says = append(says, fmt.Sprintf("%s: %s", ranksText(ranks), difference(&order[0], &sig)))
	}
	slices.SortFunc(v.Culprits, byRank)
	v.Victims = w.waitsFor([]*node{n}, func(a *actor) bool { return culprits[a] })
	v.at(m)
	v.Text = fmt.Sprintf("the ranks made different calls as number %d on %s: %s", m.key.seq, commText(m.slot), strings.Join(says, "; "))
	return v
}

// stuck is the verdict on a meeting to which all have come.
func (w *walk) stuck(n *node) (Verdict, bool) {
	m := n.meeting
	var worst *place
	for _, p := range m.present {
		switch {
		case p.slot.Wait < 0:
			return Verdict{}, false // it is at work: slow, perhaps, but not stuck
		case p.slot.WaitAge < m.age/2 && m.age < patience:
			return Verdict{}, false // bytes have come a short while ago
		case worst == nil || p.slot.WaitAge > worst.slot.WaitAge:
			worst = p
		}
	}
	peer := w.g.seats[seat{m.key.comm, worst.slot.Wait}]
	if peer == nil {
		return Verdict{}, false
	}
	v := Verdict{Reason: Transport, Confidence: Likely}
	from, to := rankOf(peer.actor, m.key.comm), rankOf(worst.actor, m.key.comm)
	v.Culprits = []Rank{from, to}
	slices.SortFunc(v.Culprits, byRank)
	v.Victims = w.waitsFor([]*node{n}, func(*actor) bool { return false })
	v.at(m)
	v.Age = Age(worst.slot.WaitAge)
	v.Text = fmt.Sprintf("all ranks are in %s, and nothing has come from %s to %s for %s, by %s",
		m.text(), from, to, Age(worst.slot.WaitAge), path(from, to))
	for _, p := range m.present[:min(len(m.present), maxEvidence)] {
		v.Evidence = append(v.Evidence, fmt.Sprintf("%s has waited for rank %d of the communicator for %s",
			rankOf(p.actor, m.key.comm), p.slot.Wait, Age(p.slot.WaitAge)))
	}
	if peer.slot.Wait == worst.slot.Rank || !slices.ContainsFunc(m.present, func(p *place) bool { return p.slot == peer.slot }) {
		v.Confidence = Certain
	}
	return v, true
}

// path is how bytes go from one rank to another.
func path(from, to Rank) string {
	switch {
	case from.Host == "" || to.Host == "":
		return "a way that is not known"
	case from.Host == to.Host:
		return "the memory of host " + from.Host
	default:
		return fmt.Sprintf("TCP from host %s to host %s", from.Host, to.Host)
	}
}

// unfinished are the verdicts on calls that wait for a group job of their own rank that nobody completes.
func (g *graph) unfinished() []Verdict {
	var verdicts []Verdict
	for _, a := range g.actors {
		for _, s := range a.slots {
			group := s.open(tape.ActGroup)
			i := slices.IndexFunc(s.Acts, func(o OpenAct) bool {
				return o.Stalled && o.Act != tape.ActGroup && o.Act != tape.ActInit
			})
			if group == nil || i < 0 || s.InFlight > 0 || a.note.Fate != Alive {
				continue
			}
			act := s.Acts[i]
			r := rankOf(a, s.Comm)
			wait := Wait{Rank: r, Comm: s.Comm, Name: s.Name, Call: act.Act.String(), Age: Age(act.Age)}
			verdicts = append(verdicts, Verdict{
				Reason: UnfinishedGroup, Confidence: Certain, Culprits: []Rank{r}, Comm: s.Comm, Name: s.Name, Call: act.Act.String(),
				Seq: act.Seq, Age: Age(group.Age), Victims: []Wait{wait},
				Text: fmt.Sprintf("%s of %s on %s waits for a group job that nobody completes, since %s: call Wait or AsyncError",
					act.Act, commText(s), r, Age(group.Age)),
			})
		}
	}
	return verdicts
}

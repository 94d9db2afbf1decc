package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// entry is an event of the timeline. An act's record is stored as an operation's.
type entry struct {
	tape.OpRecord
	m     *member
	rank  int // as of the event's record
	act   tape.Act
	ops   uint32
	times uint32 // of a refused call
	text  string
	site  string // of an error
}

// shown tells whether an event belongs in the timeline. The phases of an operation, the ends of its waits and its steps
// over the network don't; nor do the start and the end of the operation of a split, which is shown as an act.
func shown(ev *tape.Event) bool {
	if ev.IsLife {
		return ev.Life.Stage != tape.StagePhase || ev.Life.Phase != tape.PhaseNone
	}
	stage := ev.Op.Stage
	if !ev.Op.Signature.Call.IsOperation() &&
		(stage == tape.StageStart || stage == tape.StageEnd && ev.Op.Code == lifecycle.CodeOK) {
		return false
	}
	if stage == tape.StageStart && ev.Op.Phase == tape.PhaseStream {
		return false // its stream has not done it: it is shown when it ends, or as in flight
	}
	return stage != tape.StagePhase && stage != tape.StageStep && (stage != tape.StageWait || ev.Op.Wait >= 0)
}

func newEntry(m *member, ev *tape.Event) entry {
	e := entry{OpRecord: ev.Op, m: m, rank: ev.Comm.Rank}
	if r := &ev.Life; ev.IsLife {
		e.OpRecord = tape.OpRecord{
			Time: r.Time, Start: r.Start, Seq: r.Seq, Stage: r.Stage, Phase: r.Phase, Code: r.Code, Wait: -1,
			Signature: tape.Signature{Call: r.Call, Peer: r.Peer},
		}
		e.act, e.ops, e.times, e.text = r.Act, r.Ops, r.Times, r.Text
		if r.Code != lifecycle.CodeOK {
			e.site = site(r.Site)
		}
	}
	return e
}

// timeline is the events that the filters leave, of all processes on one clock.
func timeline(procs []*process, end time.Time, opts *Options) []Event {
	var all []*entry
	at := func(e *entry) time.Time { return e.m.proc.at(e.Time) }
	for _, p := range procs {
		for _, m := range p.members {
			if len(opts.Ranks) > 0 && !slices.Contains(opts.Ranks, m.jobRank()) {
				continue
			}
			for i := range m.timeline {
				if e := &m.timeline[i]; opts.Since == 0 || end.Sub(at(e)) <= opts.Since {
					all = append(all, e)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *entry) int {
		return cmp.Or(at(a).Compare(at(b)), cmp.Compare(a.m.proc.index, b.m.proc.index))
	})
	if opts.Last > 0 {
		all = all[max(0, len(all)-opts.Last):]
	}
	events := make([]Event, 0, len(all))
	for _, e := range all {
		events = append(events, e.event(at(e)))
	}
	return events
}

func (e *entry) event(at time.Time) Event {
	r := Event{
		Time: at, Rank: e.rank, JobRank: e.m.knownRank(), Process: e.m.proc.index, Comm: e.m.Name,
		CommID: e.m.ID, Call: e.Signature.Call.String(), Seq: e.Seq, Stage: e.Stage.String(),
	}
	if e.act != tape.ActNone {
		r.Call = e.act.String()
	}
	if e.Code != lifecycle.CodeOK {
		r.Code = e.Code.String()
	}
	r.Text = e.sentence(r.Call)
	return r
}

// sent says what an operation has sent to another node: "all_reduce 17 sent 4 MiB to rank 5 through rank 1 in 3s".
func (e *entry) sent(name string) string {
	s := e.Proxied()
	text := fmt.Sprintf("%s sent %s to rank %d", name, humanize.IBytes(s.Bytes), s.Peer)
	if int(s.Carrier) != e.rank {
		text += fmt.Sprintf(" through rank %d", s.Carrier)
	}
	text += " in " + span(s.End-s.Start)
	if s.Code == lifecycle.CodeInProgress {
		text += " so far"
	}
	if s.Waited != tape.PhaseNone {
		text += ", waiting for " + s.Waited.String()
	}
	return text
}

// sentence says what happened: "all_reduce 17 waits for rank 2".
func (e *entry) sentence(call string) string {
	name := numbered(call, e.Seq)
	if e.act == tape.ActNone && !e.Signature.Call.IsOperation() {
		name = call // the number is not the act's, but that of the operation by which the ranks agree on it
	}
	took := ""
	if e.Start > 0 && e.Start <= e.Time {
		took = " after " + span(e.Time-e.Start)
	}
	what := ""
	if e.ops > 0 {
		what = count(int(e.ops), "operation")
	} else if e.act == tape.ActNone {
		what = describe(e.Signature)
	}
	if what != "" {
		what = " (" + what + ")"
	}
	switch e.Stage {
	case tape.StageStart:
		return name + " began" + what
	case tape.StagePhase:
		text := name + " is in " + e.Phase.String()
		if e.text != "" {
			text += ": " + e.text
		}
		return text
	case tape.StageWait:
		text := name + " waits for rank " + strconv.Itoa(int(e.Wait))
		if job := e.m.knownRank(); job >= 0 && job != e.rank {
			text += " of " + e.m.name() // whose ranks have other numbers
		}
		return text
	case tape.StageEnd:
		if e.act == tape.ActNone && e.text != "" {
			return "failed: " + e.text
		}
		if e.Code == lifecycle.CodeOK {
			ended := " ended"
			switch {
			case e.act != tape.ActNone || !e.m.Enqueues():
			case e.Phase == tape.PhaseStream:
				ended = " was completed by its stream"
			default:
				ended = " returned" // its stream may not have done it
			}
			return name + ended + took + what // what: most operations have no start
		}
		text := name + " failed" + took + ": " + e.Code.String()
		if e.text != "" {
			text += ": " + e.text
		}
		return text
	case tape.StageMisuse:
		verb := " was refused: "
		switch e.Code { //nolint:exhaustive // others are refused
		case lifecycle.CodeInProgress:
			verb = " was deferred: "
		case lifecycle.CodeLeaked:
			verb = ": "
		}
		text := cmp.Or(e.text, e.Code.String())
		if e.site != "" {
			text += " (at " + e.site + ")"
		}
		if e.times > 1 {
			text += fmt.Sprintf("; %d such calls so far", e.times)
		}
		return name + verb + text
	case tape.StageDevice:
		return fmt.Sprintf("%s ran on the device for %s", name, span(e.Time-e.Start))
	case tape.StageKernel:
		if e.Phase == tape.PhaseAgree {
			return fmt.Sprintf("%s's kernel waited for the other ranks' for %s", name, span(e.Time-e.Start))
		}
		return fmt.Sprintf("%s's kernel ran for %s", name, span(e.Time-e.Start))
	case tape.StageProxied:
		return e.sent(name)
	default:
		return fmt.Sprintf("%s: %s", name, e.Stage)
	}
}

package postmortem

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// entry is an event as it is kept until it is known which are the last.
type entry struct {
	m           *member
	time, start int64
	seq, bytes  uint64
	text        string // of an error
	site        string
	act         tape.Act
	call        lifecycle.Call
	stage       tape.Stage
	phase       tape.Phase
	code        lifecycle.Code
	dtype, red  uint8
	rank        int32 // as the event's record knew it
	peer, wait  int32
	ops         uint32
}

func newEntry(m *member, ev *tape.Event) entry {
	e := entry{m: m, rank: int32(ev.Comm.Rank)}
	if ev.IsLife {
		r := &ev.Life
		e.time, e.start, e.seq, e.act, e.call, e.stage, e.phase, e.code = r.Time, r.Start, r.Seq, r.Act, r.Call,
			r.Stage, r.Phase, r.Code
		e.peer, e.wait, e.ops = r.Peer, -1, r.Ops
		if r.Code != lifecycle.CodeOK {
			e.text = r.Text
			e.site = site(r.Site)
		}
		return e
	}
	r := &ev.Op
	e.time, e.start, e.seq, e.call, e.stage, e.phase, e.code = r.Time, r.Start, r.Seq, r.Signature.Call,
		r.Stage, r.Phase, r.Code
	e.peer, e.wait, e.bytes, e.dtype, e.red = r.Signature.Peer, r.Wait, r.Signature.Bytes, r.Signature.DataType,
		r.Signature.Reduction
	return e
}

// timeline is the events that the filters leave, of all processes on one clock.
func timeline(procs []*process, end time.Time, opts *Options) []Event {
	type placed struct {
		*entry
		at time.Time
	}
	var all []placed
	for _, p := range procs {
		for _, m := range p.members {
			if len(opts.Ranks) > 0 && !slices.Contains(opts.Ranks, m.jobRank()) {
				continue
			}
			for e := range m.timeline.all {
				at := p.at(e.time)
				if opts.Since > 0 && end.Sub(at) > opts.Since {
					continue
				}
				all = append(all, placed{e, at})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.m.proc.index, b.m.proc.index))
	})
	if opts.Last > 0 && len(all) > opts.Last {
		all = all[len(all)-opts.Last:]
	}
	events := make([]Event, 0, len(all))
	for _, e := range all {
		events = append(events, e.event(e.at))
	}
	return events
}

func (e *entry) event(at time.Time) Event {
	r := Event{
		Time: at, Rank: int(e.rank), JobRank: e.m.knownRank(), Process: e.m.proc.index, Comm: e.m.Name, Call: e.call.String(),
		Seq: e.seq, Stage: e.stage.String(),
	}
	if e.act != tape.ActNone {
		r.Call = e.act.String()
	}
	if e.code != lifecycle.CodeOK {
		r.Code = e.code.String()
	}
	r.Text = e.sentence(r.Call)
	return r
}

// sentence says what happened: "all_reduce 17 waits for rank 2".
func (e *entry) sentence(call string) string {
	name := numbered(call, e.seq)
	took := ""
	if e.start > 0 && e.start <= e.time {
		took = " after " + span(e.time-e.start)
	}
	what := describe(tape.Signature{Call: e.call, DataType: e.dtype, Reduction: e.red, Peer: e.peer, Bytes: e.bytes},
		e.act)
	if e.ops > 0 {
		what = count(int(e.ops), "operation")
	}
	if what != "" {
		what = " (" + what + ")"
	}
	switch e.stage {
	case tape.StageStart:
		return name + " began" + what
	case tape.StagePhase:
		if e.phase == tape.PhaseNone {
			return name + " goes on"
		}
		return name + " is in " + phaseText(e.phase)
	case tape.StageWait:
		if e.wait < 0 {
			return name + " goes on"
		}
		text := name + " waits for rank " + strconv.Itoa(int(e.wait))
		if job := e.m.knownRank(); job >= 0 && job != int(e.rank) {
			text += " of " + e.m.name() // where ranks have other numbers
		}
		return text
	case tape.StageEnd:
		if e.act == tape.ActNone && e.text != "" {
			return "failed: " + e.text
		}
		if e.code == lifecycle.CodeOK {
			return name + " ended" + took + what // most operations have no other record
		}
		text := name + " failed" + took + ": " + e.code.String()
		if e.text != "" {
			text += ": " + e.text
		}
		return text
	case tape.StageMisuse:
		verb := " was refused: "
		if e.code == lifecycle.CodeInProgress {
			verb = " was put off: "
		}
		text := e.text
		if text == "" {
			text = e.code.String()
		}
		if e.site != "" {
			text += " (at " + e.site + ")"
		}
		return name + verb + text
	default:
		return fmt.Sprintf("%s: %s", name, e.stage)
	}
}

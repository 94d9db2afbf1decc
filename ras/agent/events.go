package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// VerdictKey is the bus.Event.Key of a verdict's events.
func VerdictKey(id string) string { return "verdict/" + id }

// maxEventRanks bounds the culprits and the waiting ranks in an event's data, and half of it bounds the evidence: a bus
// refuses data that are too long, and thousands of ranks may wait for one. The coordinator's own snapshot has all.
const maxEventRanks = 128

// verdictData is the data of a verdict's event.
type verdictData struct {
	verdict.Verdict
	// How many there are in all: the lists may have only the first ones.
	CulpritsTotal int `json:"culprits_total"`
	VictimsTotal  int `json:"victims_total"`
}

// dataOf is a verdict as an event has it, with as much of it as a bus takes.
func dataOf(v *verdict.Verdict) json.RawMessage {
	for n := maxEventRanks; ; n /= 2 {
		d := verdictData{v.Shorten(maxToldText, n, n, n/2), len(v.Culprits), len(v.Victims)}
		b, err := json.Marshal(d)
		if err != nil {
			panic(fmt.Sprintf("agent: %T can't be encoded: %v", d, err)) // its types all can
		}
		if len(b) <= bus.MaxData || n == 0 {
			return b
		}
	}
}

// verdictEvent is the event for a verdict that opened, changed or is withdrawn, and has been open since that time.
func verdictEvent(c *verdict.Change, since, now time.Time) bus.Event {
	v := &c.Verdict
	ev := bus.Event{
		Time: now, Key: VerdictKey(v.ID), Severity: bus.Warning, Reason: v.Reason.String(), Text: v.Text.String(),
		Data: dataOf(v),
	}
	lines := make([]string, len(v.Evidence))
	for i, e := range v.Evidence {
		lines[i] = e.String()
	}
	ev.Description = strings.Join(lines, "\n")
	if v.Urgent() {
		ev.Severity = bus.Critical
	}
	switch c.Kind {
	case verdict.Opened:
		ev.Type, ev.Stage = semconv.EventVerdictOpened, bus.Opened
	case verdict.Changed:
		ev.Type, ev.Stage = semconv.EventVerdictChanged, bus.Changed
	case verdict.Withdrawn:
		ev.Type, ev.Stage, ev.Unresolved = semconv.EventVerdictWithdrawn, bus.Closed, c.Unresolved
		over := "over" // or it would read as if it still held
		if c.Unresolved {
			over = "withdrawn unresolved"
		}
		ev.Text += fmt.Sprintf(" (%s after %v)", over, verdict.Age(now.Sub(since)))
	}
	switch {
	case len(v.Culprits) > 0:
		ev.Subject, ev.Rank = v.Culprits[0].String(), v.CulpritNumbers()
		if more := len(v.Culprits) - 1; more > 0 {
			ev.Subject += fmt.Sprintf(" and %d more", more)
		}
	case v.Name != "":
		ev.Subject = "comm " + v.Name
	default:
		ev.Subject = "the job"
	}
	return ev
}

// memberData is the data of a member's event.
type memberData struct {
	Member string    `json:"member"`
	Host   string    `json:"host,omitempty"`
	PID    int       `json:"pid,omitempty"`
	State  string    `json:"state"`
	Cause  string    `json:"cause,omitempty"`
	Exit   string    `json:"exit,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// memberEvents are the events for what happens to members. A suspicion, and its end, has none.
var memberEvents = map[string]string{
	"joined": semconv.EventRankJoined, "left": semconv.EventRankLeft, "dead": semconv.EventRankDead,
	"stopped": semconv.EventRankStopped, "resumed": semconv.EventRankResumed,
	"unreachable": semconv.EventRankUnreachable,
}

// memberEvent publishes what happened to a process, for information: if it matters to the job, a verdict follows.
func (a *Agent) memberEvent(e mesh.Event) {
	kind := memberEvents[e.What()]
	if kind == "" || e.Passing {
		return
	}
	m := &e.Member
	data := memberData{
		Member: m.Name, Host: m.Host, PID: m.PID, State: e.What(), Cause: e.Cause.String(), Since: e.Since,
	}
	if e.Exit.Known {
		data.Exit = e.Exit.String()
	}
	a.cfg.Event(bus.Event{
		Type: kind, Time: e.Since, Subject: m.String(), Rank: rankText(m.Rank), Text: e.String(),
		Data: data,
	}, false)
}

// rankText is the rank of the job that an event is about; empty if it isn't known.
func rankText(rank int) string {
	if rank < 0 {
		return ""
	}
	return strconv.Itoa(rank)
}

// commData is the data of a communicator's failure.
type commData struct {
	Comm string `json:"comm"`
	Name string `json:"comm_name,omitempty"`
	Rank int    `json:"comm_rank"`
	Code string `json:"code"`
	Peer *int32 `json:"peer,omitempty"` // the rank of the communicator that is at fault
}

// commFailed publishes that a communicator failed here, for information, and as a symptom if the cause is known.
func (a *Agent) commFailed(of mesh.Member, ev *tape.Event) {
	r := &ev.Life
	data := commData{Comm: ev.Comm.ID.String(), Name: ev.Comm.Name, Rank: ev.Comm.Rank, Code: r.Code.String()}
	if r.Peer >= 0 {
		data.Peer = new(r.Peer)
	}
	a.cfg.Event(bus.Event{
		Type: semconv.EventCommFailed, Subject: "comm " + ev.Comm.Name, Rank: rankText(of.Rank), Reason: data.Code,
		Cause: a.causeOf(ev), Data: data,
		Text: fmt.Sprintf("communicator %s of %s failed: %s", ev.Comm.Name, of, cmp.Or(r.Text, data.Code)),
	}, false)
}

// causeOf is the key of the open verdict that explains why a communicator failed; empty if none does.
func (a *Agent) causeOf(ev *tape.Event) string {
	reason, told := map[lifecycle.Code]verdict.Reason{
		lifecycle.CodeRankDead: verdict.RankDead, lifecycle.CodeUnreachable: verdict.RankUnreachable,
		lifecycle.CodeMismatch: verdict.Mismatch,
	}[ev.Life.Code]
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.open {
		v := &a.open[i].Verdict
		if v.Reason == verdict.Straggler || v.Reason == verdict.Unknown { // no communicator fails for these
			continue
		}
		waits := slices.ContainsFunc(v.Victims, func(w verdict.Wait) bool { return w.Comm == ev.Comm.ID })
		if waits || v.Comm == ev.Comm.ID || told && v.Reason == reason && v.Comm.IsZero() {
			return VerdictKey(v.ID)
		}
	}
	return ""
}

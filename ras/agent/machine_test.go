package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestMachine plays the transcripts in testdata (datadriven: go test . -rewrite writes their answers anew): what
// happens to the machine of a process, and what it does then. The processes are p0, p1 and so on, one rank each, two on
// a host; one communicator, world, has all.
//
//	job ranks=N self=R [keeps]   a machine begins, in the process of that rank, or in an agent that answers for it
//	    [containers]             each process has a host name of its own
//	step                         the input has lines: TIME INPUT…; prints what the machine does with each
//	    members [RANKS=alive|suspect|stopped|unreachable|dead|terminated|left]… [forgotten=RANKS]
//	                             the membership as it is now: what isn't said is as before, a new state since TIME;
//	                             terminated is dead, by SIGTERM
//	    notes [RANKS=in|waits|entered|idle|done|failed|gave-up|aborted|anew|PERCENT:NEWER]…
//	                             the answers to the last question: of ranks that are in all_reduce 8 of world for 6 s,
//	                             and perhaps wait for data of the next rank, have entered it just now, are in no call
//	                             since 7, have ended 8, whose world failed by rank 0's death, was revoked, who aborted
//	                             it, or did and then worked in another one, or whose device was in its collectives for
//	                             that part of the window, and of its newer half
//	      others RANKS=alive|unreachable…
//	                             and what is known of ranks whose processes are no members
//	    trouble | look | asked by=R | told yes|no | tick | leave [alone] [RANKS=…]
//	    ending [since=TIME] [after=RANKS]
//	    heard from=R turn=N [open=REASON:RANK]… [unresolved=REASON:RANK]…
//	phases                       prints the table of transitions
//	phase [of=R]                 prints the phase of each process
func TestMachine(t *testing.T) {
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		var p play
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p.t, p.d = t, d
			switch d.Cmd {
			case "job":
				p.begin()
				return ""
			case "step":
				return p.steps()
			case "phase":
				return p.phases()
			case "phases":
				return table()
			default:
				d.Fatalf(t, "there is no command %q", d.Cmd)
				return ""
			}
		})
	})
}

type play struct {
	t       *testing.T
	d       *datadriven.TestData
	members []mesh.Status
	machine *Machine
	names   map[string]string // of verdicts, by ID
}

var dawn = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func (p *play) begin() {
	var ranks, self int
	p.d.ScanArgs(p.t, "ranks", &ranks)
	p.d.ScanArgs(p.t, "self", &self)
	p.members, p.names = nil, map[string]string{}
	for r := range ranks {
		p.members = append(p.members, mesh.Status{Since: dawn, Member: mesh.Member{
			Name: fmt.Sprint("p", r), Host: fmt.Sprint("h", r/2), ID: process.ID{PID: 100 + r}, Rank: r, JobSize: ranks,
		}})
	}
	if p.d.HasArg("containers") {
		for r := range p.members {
			m := &p.members[r].Member
			m.Host, m.Machine = fmt.Sprint("pod-", r), m.Host
		}
	}
	if p.d.HasArg("keeps") {
		p.members[self].Member.Keeper = p.members[self].Member.Name
	}
	p.machine = NewMachine(p.members[self].Member)
}

// ranks reads "0-2,5".
func (p *play) ranks(text string) (ranks []int) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, found := strings.Cut(part, "-")
		if !found {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil {
			p.d.Fatalf(p.t, "%q is no list of ranks", text)
		}
		for r := a; r <= b; r++ {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func (p *play) steps() string {
	var out strings.Builder
	for line := range strings.Lines(p.d.Input) {
		words := strings.Fields(line)
		at, err := time.ParseDuration(words[0])
		if err != nil {
			p.d.Fatalf(p.t, "%v", err)
		}
		now := dawn.Add(at)
		effects := p.machine.Step(now, p.input(now, words[1], words[2:]))
		fmt.Fprintf(&out, "> %s\n", strings.Join(words, " "))
		for _, e := range effects {
			fmt.Fprintf(&out, "  %s\n", p.text(e))
		}
	}
	return out.String()
}

func (p *play) input(now time.Time, what string, args []string) Input {
	switch what {
	case "members":
		return p.membership(now, args)
	case "notes":
		args, others := args, []string(nil)
		if i := slices.Index(args, "others"); i >= 0 {
			args, others = args[:i], args[i+1:]
		}
		return Notes{Round: p.machine.round, Notes: p.notes(args), Others: p.notes(others)}
	case "trouble":
		return Trouble{}
	case "look":
		return AskedToLook{}
	case "asked":
		return AskedForNote{By: "p" + strings.TrimPrefix(args[0], "by=")}
	case "told":
		return Told{Heard: args[0] == "yes"}
	case "tick":
		return Tick{}
	case "ending":
		var in Ending
		for _, a := range args {
			switch key, value, _ := strings.Cut(a, "="); key {
			case "since":
				since, err := time.ParseDuration(value)
				if err != nil {
					p.d.Fatalf(p.t, "%v", err)
				}
				in.Since = dawn.Add(since)
			case "after":
				for _, r := range p.ranks(value) {
					in.After = append(in.After, fmt.Sprintf("p%d", r))
				}
			}
		}
		return in
	case "leave":
		own := verdict.Note{Member: p.machine.self.Name}
		if notes := p.notes(slices.DeleteFunc(slices.Clone(args), func(a string) bool {
			return a == "alone"
		})); len(notes) > 0 {
			own = notes[0]
		}
		return Leave{Note: own, Alone: slices.Contains(args, "alone")}
	case "heard":
		return p.heard(args)
	}
	p.d.Fatalf(p.t, "there is no input %q", what)
	return nil
}

func (p *play) membership(now time.Time, args []string) Input {
	states := map[string]mesh.Status{
		"alive":       {State: mesh.Alive, Cause: mesh.CauseAnswers},
		"suspect":     {State: mesh.Suspect, Cause: mesh.CauseSilence},
		"stopped":     {State: mesh.Stopped, Cause: mesh.CauseSignal},
		"unreachable": {State: mesh.Unreachable, Cause: mesh.CauseSilence},
		"dead":        {State: mesh.Dead, Cause: mesh.CauseExit}, "left": {State: mesh.Left, Cause: mesh.CauseTold},
		"terminated": {
			State: mesh.Dead, Cause: mesh.CauseExit, Exit: process.Exit{Known: true, Signal: syscall.SIGTERM},
		},
	}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		if key == "forgotten" {
			p.members = slices.DeleteFunc(p.members, func(s mesh.Status) bool {
				return slices.Contains(p.ranks(value), s.Member.Rank)
			})
			continue
		}
		for _, r := range p.ranks(key) {
			i := slices.IndexFunc(p.members, func(s mesh.Status) bool { return s.Member.Rank == r })
			if s := states[value]; p.members[i].State != s.State {
				s.Member, s.Since = p.members[i].Member, now
				p.members[i] = s
			}
		}
	}
	return Membership{slices.Clone(p.members)}
}

func (p *play) notes(args []string) []verdict.Note {
	var notes []verdict.Note
	for _, a := range args {
		ranks, is, _ := strings.Cut(a, "=")
		for _, r := range p.ranks(ranks) {
			s := verdict.Slot{
				Comm: lifecycle.CommID{1}, Name: "world", Rank: r, Size: p.machine.self.JobSize, Root: 1, Job: r,
				State: lifecycle.StateReady, Wait: -1,
				Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, Seq: 8, Begun: 8, Done: 7,
			}
			switch is {
			case "in", "waits":
				s.InFlight, s.Age, s.Stalled = 1, 6*time.Second, true
				if is == "waits" {
					s.Wait, s.WaitAge = (r+1)%s.Size, s.Age
				}
			case "entered":
				s.InFlight, s.Age = 1, time.Millisecond
			case "idle":
				s.Seq, s.Begun, s.Age = 7, 7, 7*time.Second
			case "done":
				s.Done, s.Age = 8, time.Millisecond
			case "gave-up":
				s.State, s.Failed, s.Age, s.Took = lifecycle.StateFailed, true, 100*time.Millisecond, 6*time.Second
				s.Failure = &verdict.Failure{
					Code: lifecycle.CodeRevoked, Call: s.Op.Call, Seq: 8, Peer: -1, Wait: -1,
					Age: s.Age, Text: "revoked",
				}
			case "aborted", "anew":
				s.Done, s.Age, s.Left = 8, 6*time.Second, &verdict.Left{Act: tape.ActAbort, Age: time.Second}
			case "failed":
				s.State, s.Failed, s.Age, s.Took = lifecycle.StateFailed, true, 100*time.Millisecond, time.Second
				s.Failure = &verdict.Failure{
					Code: lifecycle.CodeRankDead, Call: s.Op.Call, Seq: 8, Peer: 0, Wait: 0,
					Age: s.Age, Text: "rank 0 died",
				}
			default:
				var whole, newer int
				if n, _ := fmt.Sscanf(is, "%d:%d", &whole, &newer); n == 2 {
					s.Done, s.Age = 8, time.Millisecond
					s.Stay = model.Stay{Span: inside(whole, model.StayWindow), Newer: inside(newer, model.StayWindow/2)}
				}
			}
			n := verdict.Note{Member: fmt.Sprint("p", r), Rank: r}
			switch is {
			case "alive":
				n.Stale = true
			case "unreachable":
				n.Stale, n.Fate, n.FateAge, s.Begun = true, verdict.Unreachable, 6*time.Second, 7
			}
			n.Slots = []verdict.Slot{s}
			if is == "anew" {
				s.Comm, s.Left, s.Age = lifecycle.CommID{'a'}, nil, 100*time.Millisecond
				n.Slots = append(n.Slots, s)
			}
			notes = append(notes, n)
		}
	}
	return notes
}

// inside is what looks see of a device that is in collectives for a part of the time.
func inside(percent int, over time.Duration) model.Span {
	in := int64(over) * int64(percent) / 100
	return model.Span{Looks: int(over / time.Second), Over: int64(over), Inside: in, Busy: in, Ops: percent, Done: 100}
}

// heard makes the input for what a coordinator says.
func (p *play) heard(args []string) Input {
	var in Heard
	for _, a := range args {
		switch key, value, _ := strings.Cut(a, "="); key {
		case "from":
			in.From = "p" + value
		case "turn":
			in.Turn, _ = strconv.ParseUint(value, 10, 64)
		case "open":
			reason, of, _ := strings.Cut(value, ":")
			r := p.ranks(of)[0]
			v := verdict.Verdict{
				ID: value, Text: verdict.Sentence("rank " + of),
				Culprits: []verdict.Rank{{Job: r, Comm: -1, Member: "p" + of}},
			}
			if err := v.Reason.UnmarshalText([]byte(reason)); err != nil {
				p.d.Fatalf(p.t, "%v", err)
			}
			in.Open = append(in.Open, v)
		case "unresolved":
			in.Unresolved = append(in.Unresolved, value)
		}
	}
	return in
}

// text is an effect in words.
func (p *play) text(e Effect) string {
	since := func(t time.Time) string { return t.Sub(dawn).String() }
	list := func(open []verdict.Verdict) string {
		if len(open) == 0 {
			return "nothing"
		}
		all := make([]string, 0, len(open))
		for i := range open {
			all = append(all, p.name(&open[i]))
		}
		return strings.Join(all, ", ")
	}
	switch e := e.(type) {
	case AskNotes:
		return "ask for notes: " + strings.Join(e.Of, " ")
	case TellTrouble:
		return "tell " + e.To + " of trouble"
	case StopTelling:
		return "stop telling"
	case Broadcast:
		text := fmt.Sprintf("broadcast, turn %d: %s", e.Turn, list(e.Open))
		for _, id := range e.Unresolved {
			text += "; unresolved: " + p.names[id]
		}
		return text
	case Tell:
		text := "tell "
		if e.Outward {
			text = "tell outward "
		}
		if text += e.Change.Kind.String() + ": " + p.name(&e.Change.Verdict); e.Change.Unresolved {
			text += ", unresolved"
		}
		return text
	case Publish:
		return "publish: " + list(e.Open)
	case Settled:
		return "settled what began before " + since(e.Began)
	case Wake:
		return "wake at " + since(e.At)
	}
	return fmt.Sprintf("%T", e)
}

func (p *play) name(v *verdict.Verdict) string {
	ranks := make([]string, 0, len(v.Culprits))
	for _, c := range v.Culprits {
		ranks = append(ranks, strconv.Itoa(c.Job))
	}
	name := fmt.Sprintf("%s [%s]", v.Reason, strings.Join(ranks, " "))
	p.names[v.ID] = name
	return name
}

func (p *play) phases() string {
	var out strings.Builder
	for _, s := range p.members {
		if m := p.machine.members[s.Member.Name]; m != nil {
			fmt.Fprintf(&out, "%s %s\n", s.Member.Name, m.phase)
		}
	}
	return out.String()
}

// table applies each trigger to a process of each phase.
func table() string {
	var out strings.Builder
	for from := range numPhases {
		fmt.Fprintf(&out, "%s:", from)
		for h := range numTriggers {
			m := member{phase: from, since: dawn}
			m.on(h, dawn.Add(time.Second))
			switch {
			case m.phase == from && m.since.Equal(dawn):
			case m.phase != from && m.since.Equal(dawn.Add(time.Second)):
				fmt.Fprintf(&out, " %s→%s", h, m.phase)
			default:
				fmt.Fprintf(&out, " %s→%s SINCE %v", h, m.phase, m.since)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestPhases checks what must hold for all phases, whatever the table says: a process that runs again is looked at
// anew, however it was taken for gone; a process that ended in order did, whatever was thought before; and only a
// process that runs gives a note.
func TestPhases(t *testing.T) {
	after := func(from phase, by trigger) phase {
		m := member{phase: from}
		m.on(by, dawn)
		return m.phase
	}
	for from := range numPhases {
		if got := after(from, runs); got != speaking && got != silent {
			t.Errorf("%s, and runs: %s", from, got)
		}
		if got := after(from, departed); got != left {
			t.Errorf("%s, and left: %s", from, got)
		}
		if got := after(from, died); got != dead && got != retired {
			t.Errorf("%s, and died: %s", from, got)
		}
		if got := after(from, released); got != from && got != retired {
			t.Errorf("%s, and is not missed: %s", from, got)
		}
		for h := range numTriggers {
			if got := after(from, h); got >= numPhases {
				t.Errorf("%s, %s: no phase", from, h)
			}
		}
	}
}

var phaseNames = [numPhases]string{"speaking", "silent", "stopped", "doubted", "unreachable", "dead", "left", "retired"}

func (p phase) String() string { return phaseNames[p] }

var triggerNames = [numTriggers]string{
	"answered", "unanswered", "runs", "halted", "lost", "longLost", "died", "departed", "released",
}

func (t trigger) String() string { return triggerNames[t] }

// follower is the machine of rank 1 of a job, and the job's members; p0 coordinates it.
func follower(ranks int) (*Machine, []mesh.Status) {
	members := make([]mesh.Status, ranks)
	for r := range members {
		members[r] = mesh.Status{Since: dawn, Member: mesh.Member{Name: fmt.Sprint("p", r), Rank: r, JobSize: ranks}}
	}
	m := NewMachine(members[1].Member)
	m.Step(dawn, Membership{members})
	return m, members
}

// TestAgeOfAKeptVerdict: a new coordinator takes over a verdict that it can't judge at its first look. The verdict gets
// older by the time since it was told, and later by the time between two looks.
func TestAgeOfAKeptVerdict(t *testing.T) {
	m, members := follower(3)
	v := verdict.Verdict{
		ID: "v", Reason: verdict.NotEntered, Age: verdict.Age(time.Second),
		Culprits: []verdict.Rank{{Job: 2, Comm: 2, Member: "p2"}},
	}
	m.Step(dawn.Add(time.Second), Heard{From: "p0", Broadcast: Broadcast{Turn: 1, Open: []verdict.Verdict{v}}})
	members = slices.Clone(members)
	members[0].State, members[0].Since = mesh.Left, dawn.Add(2*time.Second)
	m.Step(dawn.Add(2*time.Second), Membership{members})
	for _, at := range []time.Duration{3 * time.Second, 5 * time.Second} {
		m.Step(dawn.Add(at), Tick{})
		m.Step(dawn.Add(at), Notes{Round: m.round}) // p2 doesn't answer
		if open := m.Open(); len(open) != 1 || time.Duration(open[0].Age) != at {
			t.Errorf("after %v: %v are open, want one that is as old", at, open)
		}
	}
}

// TestWithdrawnAsTold: a verdict that is withdrawn is told as it was told last, with its age, and not as it was at the
// moment before, when its ranks were ending.
func TestWithdrawnAsTold(t *testing.T) {
	m, _ := follower(2)
	v := verdict.Verdict{
		ID: "v", Reason: verdict.NotEntered, Age: verdict.Age(time.Second), Name: "told",
		Culprits: []verdict.Rank{{Job: 0, Member: "p0"}},
	}
	ending := v
	ending.Name = "ending"
	var withdrawn verdict.Verdict
	for at, open := range [][]verdict.Verdict{{v}, {ending}, {}} {
		b := Broadcast{Turn: uint64(at) + 1, Open: open}
		for _, e := range m.Step(dawn.Add(time.Duration(at)*time.Second), Heard{From: "p0", Broadcast: b}) {
			if tell, ok := e.(Tell); ok && tell.Change.Kind == verdict.Withdrawn {
				withdrawn = tell.Change.Verdict
			}
		}
	}
	if withdrawn.Name != "told" || withdrawn.Age != v.After(2*time.Second).Age {
		t.Errorf("withdrawn: %+v", withdrawn)
	}
}

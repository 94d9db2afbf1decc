package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

func TestWhoCoordinates(t *testing.T) {
	now := time.Unix(1000, 0)
	status := func(name string, rank int, s mesh.State, since time.Duration) mesh.Status {
		return mesh.Status{Member: mesh.Member{Name: name, Rank: rank}, State: s, Since: now.Add(-since)}
	}
	for _, c := range []struct {
		want    string
		members []mesh.Status
	}{
		{"", nil},
		{"", []mesh.Status{status("a", 0, mesh.Dead, 0), status("b", 1, mesh.Left, 0)}},
		{"b", []mesh.Status{status("a", 2, mesh.Alive, 0), status("b", 1, mesh.Alive, 0)}},
		{"b", []mesh.Status{status("a", -1, mesh.Alive, 0), status("b", 7, mesh.Alive, 0)}}, // a rank goes before none
		{"a", []mesh.Status{status("b", -1, mesh.Alive, 0), status("a", -1, mesh.Alive, 0)}},
		{"b", []mesh.Status{status("a", 0, mesh.Stopped, time.Hour), status("b", 1, mesh.Alive, 0)}},
		{"b", []mesh.Status{status("a", 0, mesh.Unreachable, 0), status("b", 1, mesh.Alive, 0)}},
		{"a", []mesh.Status{status("a", 0, mesh.Suspect, time.Second), status("b", 1, mesh.Alive, 0)}}, // a packet was lost
		{"b", []mesh.Status{status("a", 0, mesh.Suspect, time.Minute), status("b", 1, mesh.Alive, 0)}},
	} {
		if got := coordinator(c.members, now); got != c.want {
			t.Errorf("of %v, %q coordinates, want %q", c.members, got, c.want)
		}
	}
}

func TestFatesInNotes(t *testing.T) {
	now := time.Unix(1000, 0)
	status := func(name, host string, s mesh.State, since time.Duration) mesh.Status {
		return mesh.Status{Member: mesh.Member{Name: name, Host: host, Rank: 1}, State: s, Since: now.Add(-since)}
	}
	for name, c := range map[string]struct {
		answered []string
		members  []mesh.Status
		want     map[string]verdict.Fate
		unsure   bool
	}{
		"alive":               {[]string{"a"}, []mesh.Status{status("a", "x", mesh.Alive, time.Hour)}, map[string]verdict.Fate{"a": verdict.Alive}, false},
		"alive and silent":    {nil, []mesh.Status{status("a", "x", mesh.Alive, time.Hour)}, map[string]verdict.Fate{}, true},
		"dead, spoken for":    {[]string{"a"}, []mesh.Status{status("a", "x", mesh.Dead, time.Hour)}, map[string]verdict.Fate{"a": verdict.Dead}, false},
		"dead":                {nil, []mesh.Status{status("a", "x", mesh.Dead, 0)}, map[string]verdict.Fate{"a": verdict.Dead}, false},
		"left":                {[]string{"a"}, []mesh.Status{status("a", "x", mesh.Left, 0)}, map[string]verdict.Fate{}, false},
		"suspect and silent":  {nil, []mesh.Status{status("a", "x", mesh.Suspect, 0)}, map[string]verdict.Fate{}, true},
		"suspect and answers": {[]string{"a"}, []mesh.Status{status("a", "x", mesh.Suspect, 0)}, map[string]verdict.Fate{"a": verdict.Alive}, false},
		"lost just now":       {nil, []mesh.Status{status("a", "x", mesh.Unreachable, time.Second)}, map[string]verdict.Fate{}, true},
		"lost":                {nil, []mesh.Status{status("a", "x", mesh.Unreachable, time.Minute)}, map[string]verdict.Fate{"a": verdict.Unreachable}, false},
		"a host is lost as one": {
			nil,
			[]mesh.Status{status("a", "x", mesh.Unreachable, time.Minute), status("b", "x", mesh.Suspect, 0), status("c", "y", mesh.Unreachable, time.Minute)},
			map[string]verdict.Fate{"c": verdict.Unreachable},
			true,
		},
	} {
		var notes []verdict.Note
		for _, n := range c.answered {
			notes = append(notes, verdict.Note{Member: n})
		}
		got, unsure := withFates(notes, c.members, now, silences(nil).look(notes, c.members, now))
		fates := map[string]verdict.Fate{}
		for _, n := range got {
			fates[n.Member] = n.Fate
		}
		if len(fates) != len(c.want) || unsure != c.unsure {
			t.Errorf("%s: notes of %v, unsure: %v; want %v, %v", name, fates, unsure, c.want, c.unsure)
		}
		for n, f := range c.want {
			if fates[n] != f {
				t.Errorf("%s: %s is %v, want %v", name, n, fates[n], f)
			}
		}
	}
}

// Who is silent for too long is waited for no more; who has answered in between is waited for anew.
func TestSilenceIsWaitedForOnlyForAWhile(t *testing.T) {
	members := []mesh.Status{
		{Member: mesh.Member{Name: "a", Host: "x"}}, {Member: mesh.Member{Name: "b", Host: "x"}, State: mesh.Unreachable},
	}
	begin := time.Unix(1000, 0)
	var silent silences
	for _, look := range []struct {
		after   time.Duration
		answers bool
		unsure  bool
	}{
		{0, false, true},
		{silentTime - 1, false, true},
		{silentTime, false, false},
		{silentTime + time.Second, true, false},
		{silentTime + 2*time.Second, false, true},
		{2*silentTime + 2*time.Second, false, false},
	} {
		var notes []verdict.Note
		if look.answers {
			notes = []verdict.Note{{Member: "a"}}
		}
		now := begin.Add(look.after)
		silent = silent.look(notes, members, now)
		with, unsure := withFates(notes, members, now, silent)
		lost := slices.ContainsFunc(with, func(n verdict.Note) bool { return n.Member == "b" && n.Fate == verdict.Unreachable })
		if unsure != look.unsure || lost == look.unsure {
			t.Errorf("after %v: unsure: %v, b is out of reach: %v; want %v, %v", look.after, unsure, lost, look.unsure, !look.unsure)
		}
	}
}

// Where another one is silent each time, that keeps the coordinator for a while, too; and what was before a pause is nothing of it.
func TestSilencesAreWaitedForOnlyForAWhile(t *testing.T) {
	members := []mesh.Status{{Member: mesh.Member{Name: "a", Host: "x"}}, {Member: mesh.Member{Name: "b", Host: "x"}}}
	l := newLoop(newTestAgent(t), nil)
	now := time.Unix(1000, 0)
	l.looked = now
	for i := 0; i < 2*int(unsureTime/time.Second); i++ {
		answers := []verdict.Note{{Member: members[i%2].Member.Name}}
		silent := l.listen(answers, members, now)
		if want := min(max(0, int(unsureTime/time.Second)-i), 1); len(silent) != want {
			t.Fatalf("in second %d waits for %v, want %d", i, silent, want)
		}
		l.looked, now = now, now.Add(time.Second)
	}
	now = now.Add(silentTime)
	if silent := l.listen(nil, members, now); len(silent) != 2 || silent["a"] != now || silent["b"] != now {
		t.Errorf("after a pause waits for %v since %v, want both since %v", silent, silent["a"], now)
	}
}

// Who was silent when this process coordinated last, is waited for anew when it coordinates again.
func TestSilenceOfAnotherTime(t *testing.T) {
	l := newLoop(newTestAgent(t), nil)
	l.leads, l.silent = true, silences{"a": time.Now()}
	l.cede(time.Now())
	if len(l.silent) > 0 {
		t.Errorf("silent are %v still", l.silent)
	}
}

func TestWhoIsMissedByNobodyIsLeftOut(t *testing.T) {
	shared := verdict.Slot{Comm: [16]byte{1}, Size: 2}
	other := verdict.Slot{Comm: [16]byte{2}, Size: 2}
	dead := verdict.Note{Member: "dead", Fate: verdict.Dead, Slots: []verdict.Slot{shared}}
	if got := concerned([]verdict.Note{{Member: "a", Slots: []verdict.Slot{other}}, dead}, nil); len(got) != 1 {
		t.Errorf("%d notes, want the living one alone", len(got))
	}
	if got := concerned([]verdict.Note{{Member: "a", Slots: []verdict.Slot{shared}}, dead}, map[string]burial{"dead": {reason: verdict.RankDead}}); len(got) != 2 {
		t.Errorf("%d notes, want the dead one's, whom a waits for", len(got))
	}
	if got := concerned([]verdict.Note{{Member: "dead", Fate: verdict.Dead}}, map[string]burial{"another": {reason: verdict.RankDead}}); len(got) != 1 {
		t.Error("the one of whom nothing is known but its end is left out")
	}
	if got := concerned([]verdict.Note{{Member: "dead", Fate: verdict.Dead}}, map[string]burial{"dead": {reason: verdict.RankDead}}); len(got) != 0 {
		t.Error("one of whom nothing is known any more is missed again")
	}
}

// Who ended is buried when nothing is open about it any more, in any process, and not for longer than it is known to have ended.
func TestWhoIsBuried(t *testing.T) {
	culprit := func(name string) []verdict.Rank { return []verdict.Rank{{Job: 1, Member: name}} }
	dead, lost := verdict.Verdict{Reason: verdict.RankDead, Culprits: culprit("dead")}, verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: culprit("lost")}
	withdrawn := []verdict.Change{{Kind: verdict.Withdrawn, Verdict: dead}, {Kind: verdict.Withdrawn, Verdict: lost}}
	is := func(name string, s mesh.State) mesh.Status {
		return mesh.Status{Member: mesh.Member{Name: name}, State: s}
	}
	for name, tc := range map[string]struct {
		open    []verdict.Verdict
		members []mesh.Status
		want    int
	}{
		"both are gone":    {nil, []mesh.Status{is("dead", mesh.Dead), is("lost", mesh.Unreachable)}, 2},
		"one is told anew": {[]verdict.Verdict{{Reason: verdict.RankDead, Culprits: append(culprit("other"), dead.Culprits...)}}, []mesh.Status{is("dead", mesh.Dead), is("lost", mesh.Unreachable)}, 1},
		"both are back":    {nil, []mesh.Status{is("dead", mesh.Alive), is("lost", mesh.Suspect)}, 0},
		"the lost ended":   {nil, []mesh.Status{is("dead", mesh.Unreachable), is("lost", mesh.Dead)}, 1},
		"forgotten":        {nil, nil, 0},
	} {
		l := newLoop(newTestAgent(t), nil)
		if l.bury(withdrawn, tc.open, tc.members); len(l.buried) != tc.want {
			t.Errorf("%s: buried are %v", name, l.buried)
		}
	}
}

// Who was out of reach, came back and is out of reach again is missed again, though nobody looked in between: a host of which a part was not
// back yet in the eyes of this process when the others withdrew their verdict.
func TestWhoIsLostAnewIsNotBuried(t *testing.T) {
	lost := verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{{Job: 1, Member: "lost"}}}
	first := time.Unix(1000, 0)
	l := newLoop(newTestAgent(t), nil)
	l.bury([]verdict.Change{{Kind: verdict.Withdrawn, Verdict: lost}}, nil,
		[]mesh.Status{{Member: mesh.Member{Name: "lost"}, State: mesh.Unreachable, Since: first}})
	for _, tc := range []struct {
		since time.Time
		want  int
	}{{first, 1}, {first.Add(time.Minute), 0}} {
		l.remember([]mesh.Status{{Member: mesh.Member{Name: "lost"}, State: mesh.Unreachable, Since: tc.since}})
		if len(l.buried) != tc.want {
			t.Errorf("out of reach since %v: buried are %v, want %d", tc.since, l.buried, tc.want)
		}
	}
}

// A word that came and was not taken over when its sender died is what the next coordinator begins with.
func TestNextCoordinatorTellsAgainWhatWasOpen(t *testing.T) {
	a := newTestAgent(t)
	var told []string
	a.cfg.Event = func(ev bus.Event, outward bool) { told = append(told, fmt.Sprintf("%v %v", ev.Stage, outward)) }
	dead := []verdict.Verdict{{Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 1}}}}
	a.told(&message{From: "host-0", Turn: 1, Open: dead})
	l := newLoop(a, nil)
	healed := func(*verdict.Verdict) bool { return true }
	l.apply(a.remote, nobody, healed)
	l.apply(dead, everybodyAgain, healed)
	l.apply(dead, everybody, healed)
	l.apply(nil, ofWithdrawals, healed)
	if want := []string{"opened false", "changed true", "closed true"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	told = nil
	b := newLoop(a, nil)
	b.step(t.Context()) // this process is the coordinator now, alone, and finds nothing
	if want := []string{"opened false", "changed true", "closed true"}; !slices.Equal(told, want) {
		t.Errorf("taking over was told as %v, want %v", told, want)
	}
}

// TestKept: what was open stays so while some have not answered, unless it is seen to be healed.
func TestKept(t *testing.T) {
	culprit := func(rank int) verdict.Verdict {
		return verdict.Verdict{Reason: verdict.NotEntered, Culprits: []verdict.Rank{{Job: rank}}}
	}
	healed := func(v *verdict.Verdict) bool { return v.Culprits[0].Job == 3 }
	dead := verdict.Verdict{Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 4}, {Job: 5}}} // another verdict on 4
	var left []int
	for _, v := range kept([]verdict.Verdict{culprit(1), dead}, []verdict.Verdict{culprit(1), culprit(2), culprit(3), culprit(4)}, healed) {
		left = append(left, v.Culprits[0].Job)
	}
	if want := []int{1, 4, 2}; !slices.Equal(left, want) {
		t.Errorf("the culprits are %v, want %v", left, want)
	}
}

// TestUnresolved: who gives a verdict up says so, and who follows says the same, as does the last one that leaves.
func TestUnresolved(t *testing.T) {
	dead := verdict.Verdict{Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 1}}, Text: "rank 1 ended"}
	for name, tc := range map[string]struct {
		end        func(l *loop, a *Agent)
		unresolved bool
	}{
		"healed":       {func(l *loop, _ *Agent) { l.apply(nil, everybody, func(*verdict.Verdict) bool { return true }) }, false},
		"given up":     {func(l *loop, _ *Agent) { l.apply(nil, everybody, func(*verdict.Verdict) bool { return false }) }, true},
		"the job ends": {func(l *loop, _ *Agent) { l.end() }, true},
		"another one says that it is healed": {func(l *loop, a *Agent) {
			a.told(&message{From: "host-0", Turn: 1, Unresolved: []string{"another"}})
			l.follow(t.Context(), "host-0", time.Now())
		}, false},
		"another one gives it up": {func(l *loop, a *Agent) {
			a.told(&message{From: "host-0", Turn: 1, Unresolved: []string{"another", dead.ID()}})
			l.follow(t.Context(), "host-0", time.Now())
		}, true},
	} {
		a := newTestAgent(t)
		var last bus.Event
		a.cfg.Event = func(ev bus.Event, _ bool) { last = ev }
		l := newLoop(a, nil)
		l.apply([]verdict.Verdict{dead}, everybody, nil)
		tc.end(l, a)
		if last.Stage != bus.Closed || last.Unresolved != tc.unresolved || strings.Contains(last.Text, "given up after") != tc.unresolved ||
			!strings.HasPrefix(last.Text, dead.Text) {
			t.Errorf("%s: %v, unresolved %v: %s", name, last.Stage, last.Unresolved, last.Text)
		}
		// All are told of it, as long as one may have missed it.
		if told := len(l.past) == 1 && l.past[0].id == dead.ID(); told != tc.unresolved {
			t.Errorf("%s: the others are told of %v", name, l.past)
		}
	}
}

// TestReopened: what opens again is not among those that were given up, as it may heal.
func TestReopened(t *testing.T) {
	l := newLoop(newTestAgent(t), nil)
	dead := []verdict.Verdict{{Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 1}}}}
	l.apply(dead, everybody, nil)
	l.apply(nil, everybody, func(*verdict.Verdict) bool { return false })
	if len(l.past) != 1 {
		t.Fatalf("%v were given up, want one", l.past)
	}
	l.apply(dead, everybody, nil)
	l.apply(nil, everybody, func(*verdict.Verdict) bool { return true })
	if len(l.past) != 0 {
		t.Errorf("the others are told that %v were given up, want none", l.past)
	}
}

// TestHeld: a verdict is known to hold when the coordinator says so, by whoever may be the next one.
func TestHeld(t *testing.T) {
	a := newTestAgent(t)
	l := newLoop(a, nil)
	dead := verdict.Verdict{Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 1}}}
	began := time.Now()
	for turn := range uint64(3) {
		at := began.Add(time.Duration(turn) * time.Minute)
		a.told(&message{From: "host-0", Turn: turn + 1, Open: []verdict.Verdict{dead}})
		l.follow(t.Context(), "host-0", at)
		if !l.held[dead.ID()].Equal(at) {
			t.Errorf("after %v it held at %v, want then", at.Sub(began), l.held[dead.ID()].Sub(began))
		}
	}
}

// TestEndOfWhatHealed: a process that has what it waited for, or whose peer runs to its end, leaves nothing unresolved behind.
func TestEndOfWhatHealed(t *testing.T) {
	for name, tc := range map[string]struct {
		v          verdict.Verdict
		unresolved bool
	}{
		"it waited in vain": {verdict.Verdict{Reason: verdict.NotEntered, Victims: []verdict.Wait{{Rank: verdict.Rank{Member: "host-1"}, Comm: lifecycle.CommID{1}}}}, true},
		"it went on":        {verdict.Verdict{Reason: verdict.NotEntered, Victims: []verdict.Wait{{Rank: verdict.Rank{Member: "host-1"}, Comm: lifecycle.CommID{2}}}}, false},
		"others waited":     {verdict.Verdict{Reason: verdict.NotEntered, Victims: []verdict.Wait{{Rank: verdict.Rank{Member: "host-9"}, Comm: lifecycle.CommID{2}}}}, true},
	} {
		a := newTestAgent(t)
		a.book.close(lifecycle.CommID{2}, a.cfg.Now())
		var last bus.Event
		a.cfg.Event = func(ev bus.Event, _ bool) { last = ev }
		l := newLoop(a, nil)
		l.apply([]verdict.Verdict{tc.v}, everybody, nil)
		l.end()
		if last.Stage != bus.Closed || last.Unresolved != tc.unresolved {
			t.Errorf("%s: %v, unresolved %v, want %v", name, last.Stage, last.Unresolved, tc.unresolved)
		}
	}
}

// TestHostThatComesBack: while one process of a host that was out of reach is waited for, the verdict on the host has not healed.
func TestHostThatComesBack(t *testing.T) {
	now := time.Now()
	lost := verdict.Verdict{Reason: verdict.RankUnreachable}
	members := []mesh.Status{{Member: mesh.Member{Name: "a-1", Host: "a"}}}
	for i := range 3 {
		name := fmt.Sprint("b-", i)
		lost.Culprits = append(lost.Culprits, verdict.Rank{Job: i, Member: name})
		members = append(members, mesh.Status{Member: mesh.Member{Name: name, Host: "b", Rank: i}, State: mesh.Unreachable, Since: now.Add(-time.Minute)})
	}
	healed := func() bool {
		notes := []verdict.Note{{Member: "a-1"}}
		notes, _ = withFates(notes, members, now, silences(nil).look(notes, members, now))
		return lost.Healed(withLost(notes, members), time.Second)
	}
	for i, want := range []bool{false, false, true} {
		members[1+i].State, members[1+i].Since = mesh.Alive, now // it has not answered yet
		if got := healed(); got != want {
			t.Errorf("%d of 3 are back, and healed is %v, want %v", i+1, got, want)
		}
	}
	members[2].State = mesh.Unreachable // lost again, a moment ago
	if healed() {
		t.Error("one is out of reach again, and it is healed")
	}
}

// TestLeftBehind: of a communicator that failed, and from whose remains its rank goes on, nobody misses those who died. One that was made
// before it failed, and was used last before, is no sign of that; nor is one that failed a moment ago.
func TestLeftBehind(t *testing.T) {
	first := verdict.Slot{
		Comm: lifecycle.CommID{1}, Root: 1, State: lifecycle.StateFailed, Wait: -1,
		Failure: &verdict.Failure{Code: lifecycle.CodeRankDead, Peer: 1, Age: 5 * time.Second},
	}
	smaller := verdict.Slot{Comm: lifecycle.CommID{2}, Parent: first.Comm, Root: 1, State: lifecycle.StateReady, Seq: 7, Age: time.Millisecond, Wait: -1}
	dead := verdict.Note{Member: "dead", Rank: 1, Fate: verdict.Dead, Slots: []verdict.Slot{{Comm: first.Comm, Rank: 1}}}
	for name, tc := range map[string]struct {
		change func(first, smaller *verdict.Slot)
		missed bool
	}{
		"went on":                  {func(_, _ *verdict.Slot) {}, false},
		"was used before":          {func(_, s *verdict.Slot) { s.Age = 6 * time.Second }, true},
		"was never used":           {func(_, s *verdict.Slot) { s.Seq = 0 }, true},
		"of another communicator":  {func(_, s *verdict.Slot) { s.Parent = lifecycle.CommID{9} }, true},
		"failed, too":              {func(_, s *verdict.Slot) { s.Failure = &verdict.Failure{} }, true},
		"a moment ago":             {func(f, _ *verdict.Slot) { f.Failure = &verdict.Failure{Peer: 1, Age: time.Second} }, true},
		"still in the failed one":  {func(f, _ *verdict.Slot) { f.InFlight = 1 }, true},
		"another rank's, not this": {func(_, s *verdict.Slot) { s.Root = 2 }, true},
	} {
		f, s := first, smaller
		tc.change(&f, &s)
		got := concerned([]verdict.Note{{Member: "a", Slots: []verdict.Slot{f, s}}, dead}, nil)
		if missed := len(got) == 2; missed != tc.missed {
			t.Errorf("%s: the dead rank is missed: %v", name, missed)
		}
	}
}

// TestGoneOnWithoutWhomNothingIsKnownOf: the verdict on a host that is out of reach, whose tapes nobody can read, is withdrawn when
// the others have gone on from what failed because of it, and have all seats of the communicators that they are in.
func TestGoneOnWithoutWhomNothingIsKnownOf(t *testing.T) {
	world, smaller := lifecycle.CommID{1}, lifecycle.CommID{2}
	for name, tc := range map[string]struct {
		change func(notes []verdict.Note)
		missed bool
	}{
		"went on":           {func([]verdict.Note) {}, false},
		"dead":              {func(n []verdict.Note) { n[2].Fate = verdict.Dead }, false},
		"stopped":           {func(n []verdict.Note) { n[2].Fate = verdict.Stopped }, true},
		"one hasn't":        {func(n []verdict.Note) { n[1].Slots = n[1].Slots[:1] }, true},
		"one is silent":     {func(n []verdict.Note) { n[1].Slots = nil }, true},
		"one seat is empty": {func(n []verdict.Note) { n[0].Slots[1].Size, n[1].Slots[1].Size = 3, 3 }, true},
		"for another reason": {func(n []verdict.Note) {
			for i := range 2 {
				n[i].Slots[0].Failure = &verdict.Failure{Code: lifecycle.CodeAborted, Peer: -1, Age: 5 * time.Second}
			}
		}, true},
		"others failed, too": {func(n []verdict.Note) {
			for i := range 2 {
				n[i].Slots = append(n[i].Slots, verdict.Slot{
					Comm: [16]byte{9}, Rank: i, Size: 3, Root: 1, State: lifecycle.StateFailed, Wait: -1,
					Failure: &verdict.Failure{Code: lifecycle.CodeUnreachable, Peer: 2, Age: 5 * time.Second},
				})
			}
		}, false},
		"nothing failed": {func(n []verdict.Note) { n[0].Slots, n[1].Slots = n[0].Slots[1:], n[1].Slots[1:] }, true},
	} {
		var notes []verdict.Note
		for rank := range 2 {
			notes = append(notes, verdict.Note{Member: fmt.Sprint("a-", rank), Host: "a", Rank: rank, Slots: []verdict.Slot{
				{
					Comm: world, Rank: rank, Size: 3, Root: 1, State: lifecycle.StateFailed, Wait: -1,
					Failure: &verdict.Failure{Code: lifecycle.CodeUnreachable, Peer: 2, Age: 5 * time.Second},
				},
				{Comm: smaller, Parent: world, Rank: rank, Size: 2, Root: 1, State: lifecycle.StateReady, Seq: 7, Age: time.Millisecond, Wait: -1},
			}})
		}
		notes = append(notes, verdict.Note{Member: "b-2", Host: "b", Rank: 2, Fate: verdict.Unreachable})
		open := verdict.Diagnose(notes)
		tc.change(notes)
		got := concerned(slices.Clone(notes), nil)
		if missed := slices.ContainsFunc(got, func(n verdict.Note) bool { return n.Member == "b-2" }); missed != tc.missed {
			t.Errorf("%s: it is missed: %v", name, missed)
		}
		if tc.missed {
			continue
		}
		if all := verdict.Diagnose(got); len(all) > 0 {
			t.Errorf("%s: verdicts are %v, want none", name, all)
		}
		for i := range open {
			if v := &open[i]; v.Reason == verdict.RankUnreachable && notes[2].Fate == verdict.Unreachable && !v.Healed(notes, time.Second) {
				t.Errorf("%s: %s is withdrawn as unresolved", name, v)
			}
		}
	}
}

// TestForgotten: that nothing is known of a process any more, whom the membership has forgotten, is no sign that it runs; that it has
// left, or is a member, is one.
func TestForgotten(t *testing.T) {
	lost := verdict.Verdict{Reason: verdict.RankUnreachable, Culprits: []verdict.Rank{{Job: 1, Member: "b-1"}}}
	self := mesh.Status{Member: mesh.Member{Name: "a-1"}}
	for name, tc := range map[string]struct {
		members []mesh.Status
		healed  bool
	}{
		"forgotten":   {[]mesh.Status{self}, false},
		"as it was":   {[]mesh.Status{self, {Member: mesh.Member{Name: "b-1"}, State: mesh.Unreachable}}, false},
		"answers":     {[]mesh.Status{self, {Member: mesh.Member{Name: "b-1"}}}, true},
		"left":        {[]mesh.Status{self, {Member: mesh.Member{Name: "b-1"}, State: mesh.Left}}, true},
		"has another": {[]mesh.Status{self, {Member: mesh.Member{Name: "b-2", Rank: 1}}}, false},
	} {
		notes := withForgotten(withLost([]verdict.Note{{Member: "a-1"}}, tc.members), tc.members, []verdict.Verdict{lost})
		if got := lost.Healed(notes, time.Second); got != tc.healed {
			t.Errorf("%s: healed is %v, want %v", name, got, tc.healed)
		}
	}
}

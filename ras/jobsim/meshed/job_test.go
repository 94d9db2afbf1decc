package meshed_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
)

var lan = sim.Link{Delay: 100 * time.Microsecond, Jitter: 200 * time.Microsecond, Local: 20 * time.Microsecond}

// small is a job of eight processes on four machines with four ranks each.
func small() meshed.Config {
	return meshed.Config{Seed: 1, Members: 8, Ranks: 4, Machines: 4, Link: lan, Tuning: mesh.LAN()}
}

// with runs a job in virtual time, and gives it to f once it has gone well for ten seconds.
func with(t *testing.T, c meshed.Config, f func(t *testing.T, j *meshed.Job)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		j, err := meshed.Start(t.Context(), c)
		defer func() {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if told := j.Told(); len(told) > 0 || j.Model.Steps() < 1 {
			t.Fatalf("a healthy job made %d steps in 10s, and was told of: %v", j.Model.Steps(), told)
		}
		f(t, j)
	})
}

// verdictOf waits for the one verdict that is sent outward, and until all members but the excepted ones know it and no
// other.
func verdictOf(t *testing.T, j *meshed.Job, limit time.Duration, except func(int) bool) meshed.Told {
	t.Helper()
	began := time.Now()
	if !sim.Until(limit, func() bool { return len(opened(j, began)) > 0 }) {
		t.Fatalf("no verdict within %v; told: %v", limit, j.Told())
	}
	told := opened(j, began)
	if !sim.Until(5*time.Second, func() bool { return j.AllHold(except, told[0].Key) }) {
		for i, m := range j.Members {
			t.Logf("member %d holds %v", i, m.Agent.Open())
		}
		t.Fatalf("not all members hold %v alone", told[0].String())
	}
	return told[0]
}

// opened lists what was opened outward at from and after.
func opened(j *meshed.Job, from time.Time) (told []meshed.Told) {
	for _, o := range j.Told() {
		if o.Stage == bus.Opened && !o.At.Before(from) {
			told = append(told, o)
		}
	}
	return told
}

// history is what became of a verdict outward: "opened changed closed".
func history(j *meshed.Job, key string) string {
	var stages []string
	for _, o := range j.Told() {
		if o.Key == key &&
			(len(stages) == 0 || o.Stage != bus.Changed || stages[len(stages)-1] != bus.Changed.String()) {
			stages = append(stages, o.Stage.String())
		}
	}
	return strings.Join(stages, " ")
}

// healed waits until no member knows of an open verdict, and checks that the verdict was sent outward once, and nothing
// else was.
func healed(t *testing.T, j *meshed.Job, told meshed.Told, limit time.Duration) {
	t.Helper()
	if !sim.Until(limit, func() bool { return j.AllHold(nil) }) {
		for i, m := range j.Members {
			t.Logf("member %d holds %v", i, m.Agent.Open())
		}
		t.Fatalf("not all members hold nothing within %v", limit)
	}
	for range 3 { // and it stays so
		time.Sleep(10 * time.Second)
		if !j.AllHold(nil) {
			t.Fatalf("something is open again: %v", j.Told())
		}
	}
	if h := strings.ReplaceAll(history(j, told.Key), " changed", ""); h != "opened closed" {
		t.Errorf("outward, the verdict was %q, want opened, perhaps changed, and closed, once", history(j, told.Key))
	}
	for _, o := range j.Told() {
		if o.Key != told.Key {
			t.Errorf("beside it was told: %v", o.String())
		}
	}
	steps := j.Model.Steps()
	time.Sleep(5 * time.Second)
	if j.Model.Steps() <= steps {
		t.Error("the job doesn't go on")
	}
}

func members(v *verdict.Verdict) (names []string) {
	for _, c := range v.Culprits {
		if !slices.Contains(names, c.Member) {
			names = append(names, c.Member)
		}
	}
	return names
}

// wants checks that a verdict has this reason, and that its culprits are ranks of these members.
func wants(t *testing.T, j *meshed.Job, v *verdict.Verdict, reason verdict.Reason, of ...int) {
	t.Helper()
	var names []string
	for _, i := range of {
		names = append(names, j.Ranks[i].Name())
	}
	if v.Reason != reason || !slices.Equal(members(v), names) {
		t.Errorf("the verdict is %v of %v, want %v of %v", v, members(v), reason, names)
	}
}

func TestKilledProcessIsTheVerdict(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		const victim = 3
		from := time.Now()
		j.Kill(victim, process.Exit{Known: true, Signal: 9})
		told := verdictOf(t, j, 5*time.Second, nil)
		t.Logf("%v after the kill: %v", told.At.Sub(from), told.String())
		wants(t, j, &told.Verdict, verdict.RankDead, victim)
		if told.At.Sub(from) > 500*time.Millisecond || told.By != 0 || len(told.Verdict.Culprits) != 4 {
			t.Errorf("told by %d after %v, want member 0 within 500ms", told.By, told.At.Sub(from))
		}
		time.Sleep(20 * time.Second) // all stand still
		j.Model.Restart()            // the others go on without it
		healed(t, j, told, 10*time.Second)
	})
}

func TestStoppedProcessIsTheVerdict(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		const victim = 4
		from := time.Now()
		j.Stop(victim)
		stopped := func(i int) bool { return i == victim }
		told := verdictOf(t, j, 5*time.Second, stopped)
		t.Logf("%v after the stop: %v", told.At.Sub(from), told.String())
		wants(t, j, &told.Verdict, verdict.RankStopped, victim)
		time.Sleep(20 * time.Second)
		j.Continue(victim)
		healed(t, j, told, 10*time.Second)
	})
}

func TestSleepingRankIsTheVerdict(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		const victim = 13 // of member 3
		j.Model.Sleep(victim)
		told := verdictOf(t, j, 10*time.Second, nil)
		wants(t, j, &told.Verdict, verdict.NotEntered, 3)
		delay := time.Duration(told.At.UnixNano()-j.Model.Oldest()) - 5*time.Second
		if c := told.Verdict.Culprits; len(c) != 1 || told.Verdict.Name != "tensor" || c[0].Comm != victim%4 ||
			c[0].Job != victim {
			t.Errorf("the culprits are %v of %s, want rank %d, number %d of the tensor-parallel group",
				c, told.Verdict.Name, victim, victim%4)
		}
		t.Logf("%v after the threshold: %v", delay, told.String())
		if delay > time.Second {
			t.Errorf("told %v after the threshold, want at most 1s", delay)
		}
		time.Sleep(20 * time.Second)
		j.Model.Wake(victim)
		healed(t, j, told, 10*time.Second)
	})
}

func TestOddCallIsAMismatch(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		const victim = 21
		j.Model.Change(victim, func(h *meshed.Habit) { h.Odd = true })
		told := verdictOf(t, j, 15*time.Second, nil)
		wants(t, j, &told.Verdict, verdict.Mismatch, victim/4)
		if c := told.Verdict.Culprits; len(c) != 1 || c[0].Comm != victim || c[0].Job != victim {
			t.Errorf("the culprits are %v, want rank %d of the world", c, victim)
		}
		time.Sleep(20 * time.Second)
		j.Model.Restart()
		healed(t, j, told, 10*time.Second)
	})
}

func TestOppositeOrderIsADeadlock(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		const victim = 9 // in the world's all-reduce while its data-parallel group waits for it
		j.Model.Change(victim, func(h *meshed.Habit) { h.Swap = true })
		told := verdictOf(t, j, 15*time.Second, nil)
		v := &told.Verdict
		if v.Reason != verdict.Deadlock ||
			!slices.ContainsFunc(v.Culprits, func(r verdict.Rank) bool {
				return r.Member == j.Ranks[victim/4].Name()
			}) {
			t.Errorf("the verdict is %v of %v, want a deadlock with rank %d", v, v.Culprits, victim)
		}
		time.Sleep(20 * time.Second)
		j.Model.Restart()
		healed(t, j, told, 10*time.Second)
	})
}

func TestCutOffMachineIsTheVerdict(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		const machine = 2
		there := func(i int) bool { return j.Machine(i) == machine }
		from := time.Now()
		j.Cut(machine, true)
		if !sim.Until(40*time.Second, func() bool { return len(by(opened(j, from), there, false)) > 0 }) {
			t.Fatalf("no verdict; told: %v", j.Told())
		}
		time.Sleep(20 * time.Second)
		here := by(opened(j, from), there, false)
		t.Logf("%v after the cut: %v", here[0].At.Sub(from), here[0].String())
		wants(t, j, &here[0].Verdict, verdict.RankUnreachable, 4, 5)
		if len(here) != 1 || !j.AllHold(there, here[0].Key) {
			t.Errorf("the others were told of %v, want one verdict that all know", here)
		}
		for _, o := range by(opened(j, from), there, true) { // a member that is alone can't know that
			if o.Verdict.Reason != verdict.RankUnreachable || slices.Contains(members(&o.Verdict), j.Ranks[4].Name()) {
				t.Errorf("on the machine was told: %v", o.String())
			}
		}
		j.Cut(machine, false)
		if !sim.Until(time.Minute, func() bool { return j.AllHold(nil) }) {
			for i, m := range j.Members {
				t.Logf("member %d holds %v", i, m.Agent.Open())
			}
			t.Fatal("not all is withdrawn a minute after the network is whole again")
		}
		time.Sleep(20 * time.Second)
		for _, o := range opened(j, from) {
			if h := strings.ReplaceAll(history(j, o.Key), " changed", ""); h != "opened closed" {
				t.Errorf("%v: %s, want opened and closed", o.String(), history(j, o.Key))
			}
		}
	})
}

// TestCutOffFromManyIsOneVerdict: a machine that can no longer reach many others reports one cause, and not one for
// each of them, although it notices them one after the other.
func TestCutOffFromManyIsOneVerdict(t *testing.T) {
	c := small()
	c.Members, c.Machines = 16, 8
	with(t, c, func(t *testing.T, j *meshed.Job) {
		const machine = 7
		there := func(i int) bool { return j.Machine(i) == machine }
		from := time.Now()
		j.Cut(machine, true)
		time.Sleep(2 * time.Minute)
		for side, told := range map[string][]meshed.Told{
			"many": by(opened(j, from), there, false),
			"one":  by(opened(j, from), there, true),
		} {
			if len(told) != 1 {
				t.Errorf("the side with %s of the machines told %d verdicts, want one: %v", side, len(told), told)
			}
		}
		for i, m := range j.Members {
			want := 2 * c.Ranks
			if there(i) {
				want = 14 * c.Ranks
			}
			if open := m.Agent.Open(); len(open) != 1 || len(open[0].Culprits) != want {
				t.Errorf("member %d knows %v, want one verdict on %d ranks", i, open, want)
			}
		}
		j.Cut(machine, false)
		if !sim.Until(3*time.Minute, func() bool { return j.AllHold(nil) }) {
			t.Fatal("not all is withdrawn three minutes after the network is whole again")
		}
		for _, o := range opened(j, from) {
			if h := strings.ReplaceAll(history(j, o.Key), " changed", ""); h != "opened closed" {
				t.Errorf("%v: %s, want opened and closed", o.String(), history(j, o.Key))
			}
		}
	})
}

// by lists the verdicts that were sent by members for which is(member) == so.
func by(told []meshed.Told, is func(int) bool, so bool) (some []meshed.Told) {
	for _, o := range told {
		if is(o.By) == so {
			some = append(some, o)
		}
	}
	return some
}

func TestSlowHealthyJobGivesNone(t *testing.T) {
	c := small()
	c.Step, c.Jitter = 4*time.Second, 0.3
	c.Link = sim.Link{Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond, Local: lan.Local}
	c.Tuning = mesh.WAN()
	with(t, c, func(t *testing.T, j *meshed.Job) {
		time.Sleep(2 * quiet)
		if told := j.Told(); len(told) > 0 {
			t.Errorf("told: %v", told)
		}
		for i, m := range j.Members {
			if n := m.Agent.Stats().Rounds; n > 0 {
				t.Errorf("member %d asked all %d times", i, n)
			}
		}
	})
}

// Loss and delay are no faults, as far as the preset is made for them: a network within one building loses packets, or
// takes some ten milliseconds, but not both for minutes.
func TestLossAndDelayGiveNone(t *testing.T) {
	for name, link := range map[string]sim.Link{
		"loss":  {Delay: lan.Delay, Jitter: lan.Jitter, Loss: 0.3, Local: lan.Local},
		"delay": {Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond, Local: lan.Local},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, small(), func(t *testing.T, j *meshed.Job) {
				j.Network.SetLink(link)
				time.Sleep(quiet)
				if told := j.Told(); len(told) > 0 {
					t.Errorf("told: %v", told)
				}
			})
		})
	}
}

func TestLoneStragglerIsTheVerdict(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		const victim = 13 // of member 3
		j.Model.Change(victim, func(h *meshed.Habit) { h.Extra = 400 * time.Millisecond })
		told := verdictOf(t, j, 2*time.Minute, nil)
		if c := told.Verdict.Culprits; len(c) != 1 || c[0].Job != victim {
			t.Errorf("the culprits are %v, want rank %d", c, victim)
		}
		wants(t, j, &told.Verdict, verdict.Straggler, victim/4)
		j.Model.Change(victim, func(h *meshed.Habit) { h.Extra = 0 })
		healed(t, j, told, 2*time.Minute)
	})
}

// TestNextCoordinatorGoesOn: the coordinator is killed while a verdict is open. The next one goes on with the verdict,
// and sends it again as changed.
func TestNextCoordinatorGoesOn(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		j.Model.Sleep(20)
		asleep := verdictOf(t, j, 10*time.Second, nil)
		wants(t, j, &asleep.Verdict, verdict.NotEntered, 5)
		time.Sleep(10 * time.Second)
		from := time.Now()
		j.Kill(0, process.Exit{Known: true, Signal: 9})
		dead := opened(j, from)
		if !sim.Until(10*time.Second, func() bool {
			dead = opened(j, from)
			return len(dead) > 0 && j.AllHold(nil, asleep.Key, dead[0].Key)
		}) {
			t.Fatalf("not all know of both; told: %v", j.Told())
		}
		wants(t, j, &dead[0].Verdict, verdict.RankDead, 0)
		if dead[0].By != 1 {
			t.Errorf("member %d told it, want the next one, 1", dead[0].By)
		}
		time.Sleep(10 * time.Second)
		again := false
		for _, o := range j.Told() {
			again = again || o.Key == asleep.Key && o.By == 1 && o.Stage == bus.Changed
		}
		if h := strings.ReplaceAll(history(j, asleep.Key), " changed", ""); h != "opened" || !again {
			t.Errorf("what was open before is %q (again: %v), want opened once, and told again as changed", h, again)
		}
		j.Model.Restart()
		if !sim.Until(15*time.Second, func() bool { return j.AllHold(nil) }) {
			t.Fatalf("not all is withdrawn; told: %v", j.Told())
		}
		for _, key := range []string{asleep.Key, dead[0].Key} {
			if h := strings.ReplaceAll(history(j, key), " changed", ""); h != "opened closed" {
				t.Errorf("%s was %q, want opened and closed once", key, h)
			}
		}
	})
}

// TestCoordinatorStopsAndComesBack: the coordinator is stopped. The next one reports that, and hands back when the
// first one runs again.
func TestCoordinatorStopsAndComesBack(t *testing.T) {
	with(t, small(), func(t *testing.T, j *meshed.Job) {
		j.Stop(0)
		told := verdictOf(t, j, 5*time.Second, func(i int) bool { return i == 0 })
		wants(t, j, &told.Verdict, verdict.RankStopped, 0)
		if told.By != 1 {
			t.Errorf("told by member %d, want 1", told.By)
		}
		time.Sleep(30 * time.Second)
		j.Continue(0)
		healed(t, j, told, 10*time.Second)
		j.Model.Sleep(9)
		from := time.Now()
		if !sim.Until(10*time.Second, func() bool { return len(opened(j, from)) > 0 }) || opened(j, from)[0].By != 0 {
			t.Errorf("after it came back was told: %v, want a verdict by member 0", opened(j, from))
		}
	})
}

// TestStallWhileTheCoordinatorDies: the coordinator is killed at the moment at which the others want to report a stall.
func TestStallWhileTheCoordinatorDies(t *testing.T) {
	c := small()
	c.Link.Delay = 30 * time.Millisecond
	with(t, c, func(t *testing.T, j *meshed.Job) {
		j.Model.Sleep(25)
		if !sim.Until(10*time.Second, func() bool { return clockSince(j) > 5*time.Second }) {
			t.Fatal("nothing stalls")
		}
		from := time.Now()
		j.Kill(0, process.Exit{})
		if !sim.Until(5*time.Second, func() bool { return len(opened(j, from)) == 2 }) {
			t.Fatalf("not both are told; told: %v", j.Told())
		}
		for _, o := range opened(j, from) {
			t.Logf("%v after the kill: %v", o.At.Sub(from), o.String())
			if o.By != 1 || o.At.Sub(from) > 2*time.Second {
				t.Errorf("told by member %d after %v, want 1 within 2s", o.By, o.At.Sub(from))
			}
		}
	})
}

// clockSince is for how long the oldest operation has been in flight.
func clockSince(j *meshed.Job) time.Duration {
	oldest := j.Model.Oldest()
	if oldest == 0 {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - oldest)
}

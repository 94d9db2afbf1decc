package sim_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/telemetry/process"
)

var lan = sim.Link{Delay: 100 * time.Microsecond, Jitter: 200 * time.Microsecond, Local: 20 * time.Microsecond}

func TestKilledIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 1, lan, 4, 4, mesh.LAN())
		victim := j.Ranks[5]
		from := time.Now()
		victim.Process.Kill(process.Exit{Known: true, Signal: syscall.SIGKILL})
		worst := told(t, j, time.Second, from, mesh.Dead, victim.Name(), victim)
		t.Logf("killed: all 15 others told after %v", worst)
		for _, r := range []*sim.Rank{j.Ranks[4], j.Ranks[0]} {
			for _, e := range r.Since(from) {
				if e.State == mesh.Dead && e.Exit.Signal != syscall.SIGKILL {
					t.Errorf("told %v, want killed", e.Event)
				}
			}
		}
		time.Sleep(time.Minute)
		for i, r := range j.Ranks {
			if events := r.Since(from); r != victim && len(events) != 1 {
				t.Errorf("rank %d was told %v, want one death", i, events)
			}
		}
	})
}

func TestStoppedIsToldAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 2, lan, 3, 3, mesh.LAN())
		victim := j.Ranks[4]
		from := time.Now()
		victim.Process.Stop()
		t.Logf("stopped: told after %v", told(t, j, 5*time.Second, from, mesh.Stopped, victim.Name(), victim))
		time.Sleep(2 * time.Minute)
		for i, r := range j.Ranks {
			for _, e := range r.Since(from) {
				if r != victim && (e.State == mesh.Dead || e.State == mesh.Unreachable) {
					t.Errorf("rank %d was told %v", i, e.Event)
				}
			}
		}
		from = time.Now()
		victim.Process.Continue()
		t.Logf("resumed: told after %v", told(t, j, 5*time.Second, from, mesh.Alive, victim.Name(), victim))
		time.Sleep(time.Minute)
		for i, r := range j.Ranks {
			for _, st := range r.Mesh.Members() {
				if st.State != mesh.Alive {
					t.Errorf("rank %d holds %v %v, want all alive", i, st.Member, st.State)
				}
			}
		}
	})
}

func TestCutOffIsUnreachableAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 3, lan, 3, 2, mesh.LAN())
		from := time.Now()
		j.Network.Cut(j.Machines[2], j.Machines[0], true)
		j.Network.Cut(j.Machines[2], j.Machines[1], true)
		for _, lost := range j.Ranks[4:] {
			worst := told(t, j, time.Minute, from, mesh.Unreachable, lost.Name(), j.Ranks[4], j.Ranks[5])
			t.Logf("cut off: told after %v", worst)
		}
		for i, r := range j.Ranks {
			for _, e := range r.Since(from) {
				if e.State == mesh.Dead || e.State == mesh.Stopped {
					t.Errorf("rank %d was told %v", i, e.Event)
				}
			}
		}
		j.Network.Cut(j.Machines[2], j.Machines[0], false)
		j.Network.Cut(j.Machines[2], j.Machines[1], false)
		if !sim.Until(time.Minute, func() bool {
			for _, r := range j.Ranks {
				for _, st := range r.Mesh.Members() {
					if st.State != mesh.Alive {
						return false
					}
				}
			}
			return true
		}) {
			t.Fatal("not all are alive again after a minute")
		}
	})
}

func TestAloneOnItsHostIsDeadWhenItsPortRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 4, lan, 8, 1, mesh.LAN())
		victim := j.Ranks[3]
		from := time.Now()
		victim.Process.Kill(process.Exit{})
		name := victim.Name()
		worst := told(t, j, 2*time.Second, from, mesh.Dead, name, victim)
		t.Logf("killed, alone on its host: told after %v", worst)
	})
}

// TestExitWith0IsNoDeath: all members are told that the process has left, and how.
func TestExitWith0IsNoDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 6, lan, 3, 3, mesh.LAN())
		from, exit := time.Now(), process.Exit{Known: true}
		leaver := j.Ranks[4]
		leaver.Process.Kill(exit)
		t.Logf("exited: told after %v", told(t, j, 5*time.Second, from, mesh.Left, leaver.Name(), leaver))
		time.Sleep(time.Minute)
		for i, r := range j.Ranks {
			if s, _ := r.Mesh.Member(leaver.Name()); r != leaver && (s.Cause != mesh.CauseExit || s.Exit != exit) {
				t.Errorf("rank %d has it as %v: %v, %v", i, s.State, s.Cause, s.Exit)
			}
		}
	})
}

func TestLeavingIsNoDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 5, lan, 3, 3, mesh.LAN())
		from := time.Now()
		leaver := j.Ranks[4]
		if err := leaver.Mesh.Close(); err != nil {
			t.Fatal(err)
		}
		leaver.Process.Kill(process.Exit{Known: true})
		t.Logf("left: told after %v", told(t, j, 5*time.Second, from, mesh.Left, leaver.Name(), leaver))
		time.Sleep(time.Minute)
		for i, r := range j.Ranks {
			if events := r.Since(from); r != leaver && len(events) != 1 {
				t.Errorf("rank %d was told %v, want one departure", i, events)
			}
		}
	})
}

func TestLossIsNoDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 6, lan, 5, 2, mesh.LAN())
		lossy := lan
		lossy.Loss = 0.3
		j.Network.SetLink(lossy)
		from := time.Now()
		time.Sleep(2 * time.Minute)
		for i, r := range j.Ranks {
			for _, e := range r.Since(from) {
				if e.State != mesh.Suspect && e.State != mesh.Alive {
					t.Errorf("rank %d was told %v", i, e.Event)
				}
			}
		}
	})
}

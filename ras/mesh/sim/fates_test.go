package sim_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

var lan = sim.Link{Delay: 100 * time.Microsecond, Jitter: 200 * time.Microsecond, Local: 20 * time.Microsecond}

func TestKilledIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 1, lan, 4, 4, mesh.LAN())
		victim := j.ranks[5]
		from := time.Now()
		victim.process.Kill(mesh.Exit{Known: true, Signal: syscall.SIGKILL})
		worst := j.told(time.Second, from, mesh.Died, victim.process.Member().Name, victim)
		t.Logf("killed: all 15 others told after %v", worst)
		for _, r := range []*rank{j.ranks[4], j.ranks[0]} {
			for _, e := range r.since(from) {
				if e.Kind == mesh.Died && e.Exit.Signal != syscall.SIGKILL {
					t.Errorf("told %v, want killed", e.Event)
				}
			}
		}
		time.Sleep(time.Minute)
		for i, r := range j.ranks {
			if events := r.since(from); r != victim && len(events) != 1 {
				t.Errorf("rank %d was told %v, want one death", i, events)
			}
		}
	})
}

func TestStoppedIsToldAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 2, lan, 3, 3, mesh.LAN())
		victim := j.ranks[4]
		from := time.Now()
		victim.process.Stop()
		t.Logf("stopped: told after %v", j.told(5*time.Second, from, mesh.Halted, victim.process.Member().Name, victim))
		time.Sleep(2 * time.Minute)
		for i, r := range j.ranks {
			for _, e := range r.since(from) {
				if r != victim && (e.Kind == mesh.Died || e.Kind == mesh.Lost) {
					t.Errorf("rank %d was told %v", i, e.Event)
				}
			}
		}
		from = time.Now()
		victim.process.Continue()
		t.Logf("resumed: told after %v", j.told(5*time.Second, from, mesh.Resumed, victim.process.Member().Name, victim))
		time.Sleep(time.Minute)
		for i, r := range j.ranks {
			for _, st := range r.mesh.Members() {
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
		j.network.Cut(j.machines[2], j.machines[0], true)
		j.network.Cut(j.machines[2], j.machines[1], true)
		for _, lost := range j.ranks[4:] {
			worst := j.told(time.Minute, from, mesh.Lost, lost.process.Member().Name, j.ranks[4], j.ranks[5])
			t.Logf("cut off: told after %v", worst)
		}
		for i, r := range j.ranks {
			for _, e := range r.since(from) {
				if e.Kind == mesh.Died || e.Kind == mesh.Halted {
					t.Errorf("rank %d was told %v", i, e.Event)
				}
			}
		}
		j.network.Cut(j.machines[2], j.machines[0], false)
		j.network.Cut(j.machines[2], j.machines[1], false)
		j.until(time.Minute, "all alive again", func() bool {
			for _, r := range j.ranks {
				for _, st := range r.mesh.Members() {
					if st.State != mesh.Alive {
						return false
					}
				}
			}
			return true
		})
	})
}

func TestAloneOnItsHostIsDeadWhenItsPortRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 4, lan, 8, 1, mesh.LAN())
		victim := j.ranks[3]
		from := time.Now()
		victim.process.Kill(mesh.Exit{})
		name := victim.process.Member().Name
		worst := j.told(2*time.Second, from, mesh.Died, name, victim)
		t.Logf("killed, alone on its host: told after %v", worst)
	})
}

func TestLeavingIsNoDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 5, lan, 3, 3, mesh.LAN())
		from := time.Now()
		leaver := j.ranks[4]
		if err := leaver.mesh.Close(); err != nil {
			t.Fatal(err)
		}
		leaver.process.Kill(mesh.Exit{Known: true})
		t.Logf("left: told after %v", j.told(5*time.Second, from, mesh.Departed, leaver.process.Member().Name, leaver))
		time.Sleep(time.Minute)
		for i, r := range j.ranks {
			if events := r.since(from); r != leaver && len(events) != 1 {
				t.Errorf("rank %d was told %v, want one departure", i, events)
			}
		}
	})
}

func TestLossIsNoDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := start(t, 6, lan, 8, 2, mesh.LAN())
		lossy := lan
		lossy.Loss = 0.3
		j.network.SetLink(lossy)
		from := time.Now()
		time.Sleep(10 * time.Minute)
		for i, r := range j.ranks {
			for _, e := range r.since(from) {
				if e.Kind != mesh.Suspected && e.Kind != mesh.Resumed {
					t.Errorf("rank %d was told %v", i, e.Event)
				}
			}
		}
	})
}

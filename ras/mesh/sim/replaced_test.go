package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// TestReplacedMembersAreForgotten: a job that replaces a process again and again knows no more members for it a while
// later, and still knows the fate of a rank that no process has taken over.
func TestReplacedMembersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tuning := mesh.WAN()
		j := start(t, 8, lan, 2, 2, tuning)
		alone := j.Ranks[1]
		alone.Process.Kill(process.Exit{Known: true, Code: 3})
		const replaced = 5
		// What gossip missed, with so many dead among so few, comes with a comparison of states.
		const settled = 5 * time.Minute
		old := j.Ranks[3]
		gone := []*sim.Rank{alone} // or new: their events aren't recorded
		for range replaced {
			from := time.Now()
			old.Process.Kill(process.Exit{Known: true, Code: 3})
			gone = append(gone, old)
			told(t, j, settled, from, mesh.Dead, old.Name(), gone...)
			process := j.Machines[1].Start(3, 4)
			m, err := mesh.Start(mesh.Config{
				Self: process.Member(), Secret: make([]byte, mesh.SecretSize), Job: "simulation", Tuning: tuning,
				Host: process, Transport: process.Transport(),
			})
			if err != nil {
				t.Fatal(err)
			}
			old = &sim.Rank{Process: process, Mesh: m}
			j.Ranks = append(j.Ranks, old)
			if _, err := m.Join(t.Context(), j.Ranks[0].Mesh.Self().Addr); err != nil {
				t.Fatal(err)
			}
			if !sim.Until(settled, func() bool { return knows(j.Ranks[0], old) && knows(j.Ranks[2], old) }) {
				t.Fatalf("%s is not known", old.Name())
			}
		}
		if n := len(j.Ranks[0].Mesh.Members()); n != 4+replaced {
			t.Fatalf("%d members are known, want %d", n, 4+replaced)
		}
		time.Sleep(time.Hour + 5*time.Minute)
		for _, r := range []*sim.Rank{j.Ranks[0], j.Ranks[2]} {
			if all := r.Mesh.Members(); len(all) != 4 {
				t.Errorf("%s knows %d members, want one a rank: %v", r.Name(), len(all), all)
			}
			if st, ok := r.Mesh.Member(alone.Name()); !ok || st.State != mesh.Dead || st.Exit.Code != 3 {
				t.Errorf("%s knows rank 1 as %v", r.Name(), st)
			}
			if st, ok := r.Mesh.Member(old.Name()); !ok || st.State != mesh.Alive {
				t.Errorf("%s knows rank 3 as %v", r.Name(), st)
			}
		}
	})
}

// knows tells whether r has another one of the job among its members.
func knows(r, other *sim.Rank) bool {
	_, ok := r.Mesh.Member(other.Name())
	return ok
}

//go:build !race

package sim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// TestReplacedOutOfReach: a member that is out of reach is forgotten once another one has had its rank for an hour; a
// member whose rank no other has taken is not. Both are members again when they can be reached. The race detector sees
// what it would see here in TestReplacedMembersAreForgotten, which is as long.
func TestReplacedOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tuning := mesh.WAN()
		j := start(t, 9, lan, 2, 2, tuning)
		from := time.Now()
		j.Network.Cut(j.Machines[0], j.Machines[1], true)
		for _, lost := range j.Ranks[2:] {
			told(t, j, 5*time.Minute, from, mesh.Unreachable, lost.Name(), j.Ranks[2], j.Ranks[3])
		}
		process := j.Machines[0].Start(2, 4)
		m, err := mesh.Start(mesh.Config{
			Self: process.Member(), Secret: make([]byte, mesh.SecretSize), Job: "simulation", Tuning: tuning,
			Host: process, Transport: process.Transport(),
		})
		if err != nil {
			t.Fatal(err)
		}
		instead := &sim.Rank{Process: process, Mesh: m}
		j.Ranks = append(j.Ranks, instead)
		if _, err := m.Join(t.Context(), j.Ranks[0].Mesh.Self().Addr); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + 5*time.Minute)
		for _, r := range j.Ranks[:2] {
			if knows(r, j.Ranks[2]) {
				t.Errorf("%s knows who was replaced", r.Name())
			}
			if st, ok := r.Mesh.Member(j.Ranks[3].Name()); !ok || st.State != mesh.Unreachable {
				t.Errorf("%s knows rank 3 as %v", r.Name(), st)
			}
		}
		j.Network.Cut(j.Machines[0], j.Machines[1], false)
		if !sim.Until(5*time.Minute, func() bool {
			for _, r := range j.Ranks {
				for _, other := range j.Ranks {
					if st, ok := r.Mesh.Member(other.Name()); !ok || st.State != mesh.Alive {
						return false
					}
				}
			}
			return true
		}) {
			t.Error("not all are members again after five minutes")
		}
	})
}

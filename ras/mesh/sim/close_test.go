package sim_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// TestCloseWaitsForNobodyWhoIsCutOff: a member that leaves while another machine is cut off announces it, and waits
// neither for its connections there nor for its probes.
func TestCloseWaitsForNobodyWhoIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tuning := mesh.WAN()
		j := start(t, 7, lan, 2, 4, tuning)
		j.Network.Cut(j.Machines[0], j.Machines[1], true)
		if !sim.Until(5*time.Minute, func() bool {
			return !slices.ContainsFunc(j.Ranks[4:], func(r *sim.Rank) bool {
				st, _ := j.Ranks[0].Mesh.Member(r.Name())
				return st.State == mesh.Alive
			})
		}) {
			t.Fatal("the machine that was cut off is alive")
		}
		time.Sleep(20 * time.Second)                            // it is tried again
		limit := 500*time.Millisecond + 2*tuning.GossipInterval // as Close says
		for _, r := range j.Ranks[:4] {
			began := time.Now()
			if err := r.Mesh.Close(); err != nil {
				t.Error(err)
			}
			took := time.Since(began)
			t.Logf("Close took %v", took)
			if took > limit {
				t.Errorf("Close took %v, want at most %v", took, limit)
			}
			time.Sleep(time.Second)
		}
	})
}

package meshed

import (
	"math"

	"github.com/carillon-rt/carillon/ras/jobsim"
)

// Steps is how many steps of the current start the slowest of the living ranks has made.
func (m *Model) Steps() (steps uint64) {
	m.do(func() {
		steps = math.MaxUint64
		for _, p := range m.job.Processes {
			for _, s := range p.Slots(nil) {
				if s.Name == world && p.State != jobsim.Dead {
					steps = min(steps, s.Done)
				}
			}
		}
	})
	return steps
}

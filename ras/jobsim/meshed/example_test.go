package meshed_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// A command that kills a process of a simulated job of 64 ranks, and says what was told. In a test, call synctest.Test
// instead of sim.Main.
func ExampleRun() {
	sim.Main(func(out *os.File) bool {
		r, err := meshed.Run(context.Background(), meshed.Plan{
			Seed: 1, Ranks: 64, Each: 8, Duration: time.Minute, Faults: []meshed.Fault{meshed.FaultKill},
		}, nil)
		if err != nil {
			fmt.Fprintln(out, err)
			return false
		}
		for _, o := range r.Faults {
			fmt.Fprintf(out, "%s, %v after the kill\n", o.Text, o.Verdict)
		}
		return len(r.False)+len(r.Missed) == 0
	})
}

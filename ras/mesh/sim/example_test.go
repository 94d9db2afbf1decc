package sim_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// A command that simulates a job of 64 members in virtual time. In a test, call synctest.Test instead of Main.
func ExampleMain() {
	sim.Main(func(out *os.File) bool {
		scale, err := sim.MeasureScale(context.Background(), sim.JobConfig{
			Seed: 1, Machines: 8, Each: 8, Tuning: mesh.LAN(),
			Link: sim.Link{Delay: 100 * time.Microsecond, Loss: 0.01, Local: 20 * time.Microsecond},
		}, time.Minute)
		if err != nil {
			fmt.Fprintln(out, err)
			return false
		}
		fmt.Fprintf(out, "a kill was told to the last of %d members after %v\n", scale.Members, scale.KilledLast)
		return scale.False == 0
	})
}

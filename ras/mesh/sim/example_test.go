package sim_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// A command that simulates a job of 64 members in virtual time. In a test, call synctest.Test instead of Main.
func ExampleMain() {
	sim.Main(func(out *os.File) bool {
		job, err := sim.StartJob(context.Background(), sim.JobConfig{
			Seed: 1, Machines: 8, Each: 8, Tuning: mesh.LAN(),
			Link: sim.Link{Delay: 100 * time.Microsecond, Loss: 0.01, Local: 20 * time.Microsecond},
		})
		defer func() { _ = job.Close() }() // also if it failed
		if err != nil {
			fmt.Fprintln(out, err)
			return false
		}
		victim, began := job.Ranks[5], time.Now()
		victim.Process.Kill(process.Exit{})
		_, last, err := job.WaitTold(time.Minute, began, mesh.Dead, victim.Name(), victim)
		fmt.Fprintf(out, "a kill was told to the last of %d members after %v, %v\n", len(job.Ranks), last, err)
		return err == nil
	})
}

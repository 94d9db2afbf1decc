package launch_test

import (
	"fmt"

	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
)

// A process that torchrun started knows its place in the job. (Programs pass os.Getenv.)
func ExampleFromEnv() {
	env := map[string]string{
		"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
		"MASTER_ADDR": "node-a", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "7f3c",
	}
	w, err := launch.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: rank %d of %d, place %d of %d on this host, meeting at %s\n",
		w.Launcher, w.Rank, w.Size, w.LocalRank, w.LocalSize, w.Address)
	// Output:
	// torchrun: rank 5 of 8, place 1 of 4 on this host, meeting at node-a:29500
}

// The error names all problems at once.
func ExampleFromEnv_problems() {
	env := map[string]string{"RANK": "9", "WORLD_SIZE": "8", "MASTER_PORT": "https"}
	_, err := launch.FromEnv(func(name string) string { return env[name] })
	fmt.Println(err)
	// Output:
	// RANK="9": it must be a whole number from 0 to 7
	// MASTER_PORT="https": it must be a whole number from 1 to 65535
	// MASTER_ADDR is not set: it must be the host of rank 0, a name or an address (or set CARILLON_ADDRESS=host:port)
}

package ncclras_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/ncclras"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// A node asks NCCL for what the tapes of its own processes don't tell. NCCL's answer was captured from 2.28.9, one
// second after a process was stopped; it lacks a comma after each nvml_dev of that process.
func Example() {
	answer, err := os.ReadFile("testdata/stopped-1s.json")
	if err != nil {
		log.Fatal(err)
	}
	address, end := ncclras.ServeExample(strings.TrimPrefix(string(answer), "OK\n"))
	defer end()
	folder, err := os.MkdirTemp("", "job")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	version, err := ncclras.ParseVersion("nccl 2.31.2") // as a tape names the engine
	if err != nil {
		log.Fatal(err)
	}
	client, err := ncclras.New(ncclras.Config{
		Version: version,
		Ranks:   4,
		Quiet:   func() bool { return true }, // what the tapes say of communicators
		Dir:     folder,
		Address: address,
	})
	if err != nil {
		log.Fatal(err)
	}
	status, err := client.Status(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range status.Comms {
		for _, r := range c.Ranks {
			if r.Condition != ncclras.Running {
				fmt.Printf("rank %d of %d, process %v: %v\n", r.Rank, c.Size, r.Process, r.Condition)
			}
		}
	}

	// For the judge: what NCCL knows of processes that have no tape here.
	var view ncclras.View
	now := time.Now()
	view.Learn(status, now)
	own := []verdict.Note{{Member: "node1-1753", Host: "node1", PID: 1753}}
	for _, n := range view.Notes(own, func(netip.Addr) string { return "node1" }, now) {
		fmt.Println(n.Member, n.Fate)
	}
	// Output:
	// rank 1 of 2, process 192.0.2.2-1756: unresponsive
	// rank 1 of 2, process 192.0.2.2-1756: unresponsive
	// rank 3 of 4, process 192.0.2.2-1756: unresponsive
	// node1-1754 alive
	// node1-1755 alive
	// node1-1756 alive
}

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/runtime/ccl"
	hostengine "github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"golang.org/x/sync/errgroup"
)

// What is known about NCCL's communicators: their nodes, if the profiler plug-in was told, and the hosts of their
// ranks.
func TestTopologyOfNCCL(t *testing.T) {
	comm := postmortem.Comm{ID: lifecycle.CommID{1}, Name: "world", Size: 5, Nodes: 2, Engine: "nccl 2.28.9"}
	for rank, host := range []string{"a", "a", "a", "b"} {
		comm.Ranks = append(comm.Ranks, postmortem.Rank{Rank: rank, Host: host})
	}
	early := postmortem.Comm{ID: lifecycle.CommID{2}, Name: "early", Size: 2, Engine: "host", Ranks: comm.Ranks[:1]}
	report := topologyOf(&commsReport{Job: "train", Comms: []postmortem.Comm{comm, early}})
	var out strings.Builder
	if err := report.write(&out); err != nil {
		t.Fatal(err)
	}
	const want = `Job train

world: 5 ranks on 2 nodes; NCCL doesn't tell rails, connections and PXN
  a: ranks 0 to 2
  b: rank 3

early: 2 ranks; the ranks have not connected to each other
  a: rank 0
`
	if out.String() != want {
		t.Errorf("the report is\n%s\nwant\n%s", &out, want)
	}
}

// Three ranks on one node and two on another: which ranks send for others, over which connections.
func TestTopology(t *testing.T) {
	dir := t.TempDir()
	w, err := tape.Create(tape.Config{Dir: dir, Job: "test"})
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"a", "a", "a", "b", "b"}
	runtimes := make([]*ccl.Runtime, len(hosts))
	for i, host := range hosts {
		runtimes[i], err = ccl.New(ccl.Config{Engine: hostengine.Kind(), Tape: w, Fabric: fabric.Config{HostID: host}})
		if err != nil {
			t.Fatal(err)
		}
	}
	id, err := runtimes[0].NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	comms := make([]*ccl.Comm, len(hosts))
	var ranks errgroup.Group
	for rank, rt := range runtimes {
		ranks.Go(func() (err error) {
			comms[rank], err = rt.InitRank(t.Context(), id, len(hosts), rank, ccl.WithName("five"))
			return err
		})
	}
	if err := ranks.Wait(); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		report, err := readComms([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		places := topologyOf(report)
		if len(places.Comms) != 1 {
			t.Fatalf("%s, the places of %d communicators are known", when, len(places.Comms))
		}
		got := places.Comms[0]
		if got.PXN != tape.PXNOn || got.Nodes != 2 || got.Connections != 3 {
			t.Errorf("%s: PXN %s on %d nodes, %d connections", when, got.PXN, got.Nodes, got.Connections)
		}
		type place struct {
			node, rail, locals, connections int
			carries                         string
		}
		for i, want := range []place{
			{0, 0, 3, 1, "[3]"}, {0, 1, 3, 1, "[4]"}, {0, 2, 3, 1, "[]"}, {1, 0, 2, 2, "[0 2]"}, {1, 1, 2, 1, "[1]"},
		} {
			r := got.Ranks[i]
			is := place{r.Node, r.Local, r.Locals, r.Connections, fmt.Sprint(r.Carries)}
			if is != want {
				t.Errorf("%s: rank %d is %+v, want %+v", when, r.Rank, is, want)
			}
		}
		var out strings.Builder
		if err := places.write(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "five: 5 ranks on 2 nodes, PXN on, 3 connections") {
			t.Errorf("the report is\n%s", out.String())
		}
	}
	check("live")
	for _, c := range comms {
		if err := c.Abort(nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, rt := range runtimes {
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	check("afterwards")
}

package postmortem_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/postmortem"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// BenchmarkRead64 makes the report of 64 ranks on eight hosts, whose tapes are of default size and full.
func BenchmarkRead64(b *testing.B) {
	const ranks, hosts, operations = 64, 8, 40_000
	dir := b.TempDir()
	sig := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024}
	writers := make([]*tape.Writer, ranks)
	comms := make([]*tape.CommWriter, ranks)
	for rank := range ranks {
		host := fmt.Sprintf("host-%d", rank%hosts)
		w, err := tape.Create(tape.Config{Dir: dir, Job: "large", Host: host, BootID: host})
		if err != nil {
			b.Fatal(err)
		}
		writers[rank] = w
		comms[rank] = w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: rank, Size: ranks, Nodes: hosts})
		comms[rank].State(lifecycle.StateReady)
	}
	for n := range operations {
		for _, c := range comms {
			c.Start(0, sig, 1)
		}
		for _, c := range comms {
			c.End(uint64(n+1), lifecycle.CodeOK)
		}
	}
	for _, w := range writers {
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		report, err := postmortem.Read([]string{dir}, postmortem.Options{Last: 40})
		if err != nil || len(report.Processes) != ranks {
			b.Fatal(err)
		}
		if err := report.Write(io.Discard, postmortem.TextOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

package postmortem_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
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
		comms[rank] = w.Comm(tape.CommInfo{
			ID: lifecycle.CommID{1}, Name: "world", Rank: rank, Size: ranks, Nodes: hosts,
		})
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
	readAll(b, dir, ranks, 1)
}

// BenchmarkReadTallies64 makes the report of 64 ranks that counted nearly as many kinds of operations as their tapes
// have room for, and did little else.
func BenchmarkReadTallies64(b *testing.B) {
	const ranks, names, classes = 64, 31, tape.SizeClasses - 1
	dir := b.TempDir()
	for rank := range ranks {
		w, err := tape.Create(tape.Config{
			Dir: dir, Job: "various", Host: fmt.Sprintf("host-%d", rank), LifeRecords: 1024,
			OpRecords: 1024,
		})
		if err != nil {
			b.Fatal(err)
		}
		for n := range names {
			c := w.Comm(tape.CommInfo{
				ID: lifecycle.CommID{byte(n + 1)}, Name: fmt.Sprintf("group-%d", n), Rank: rank,
				Size: ranks, Nodes: ranks,
			})
			c.State(lifecycle.StateReady)
			for class := range classes {
				seq := c.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << (2 * class)}, 1)
				c.End(seq, lifecycle.CodeOK)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	readAll(b, dir, ranks, names*classes)
}

// readAll measures how long it takes to read all tapes and to write the report, which has that many kinds of
// operations.
func readAll(b *testing.B, dir string, ranks, kinds int) {
	for b.Loop() {
		report, err := postmortem.Read([]string{dir}, postmortem.Options{Last: 40})
		if err != nil || len(report.Processes) != ranks || len(report.Done) != kinds {
			b.Fatal(err, len(report.Processes), len(report.Done))
		}
		if err := report.Write(io.Discard, postmortem.TextOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

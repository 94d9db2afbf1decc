package node_test

import (
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A program that handles SIGTERM itself, by the context with which it started its Node: its tape says so.
func TestSignalContext(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	dir := t.TempDir()
	n, err := node.Start(ctx, node.WithTapeDir(dir), node.WithHealth(""), node.WithSignals(false))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	tapes, err := filepath.Glob(filepath.Join(dir, "*", "*.tape"))
	if err != nil || len(tapes) != 1 {
		t.Fatalf("the tapes are %q, %v; want one", tapes, err)
	}
	r, err := tape.Open(tapes[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }() // it was only read
	if r.Header().Terminated == 0 {
		t.Error("the tape doesn't say that its process got SIGTERM")
	}
}

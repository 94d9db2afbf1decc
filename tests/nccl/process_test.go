package nccl_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/engine/nccl"
)

// peer is rank 1 in a process of its own: it makes an all-reduce, prints that, and waits to be killed.
func peer() error {
	ctx := context.Background()
	d, err := cuda.Open(os.Getenv(peerDriver))
	if err != nil {
		return err
	}
	r, err := retain(d, 1)
	if err != nil {
		return err
	}
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	id, err := lifecycle.ParseUniqueID(os.Getenv(peerID))
	if err != nil {
		return err
	}
	r.Comm, err = rt.InitRank(ctx, id, 2, 1, ccl.WithDevice(nccl.New(r.context, os.Getenv(peerLibrary))))
	if err != nil {
		return err
	}
	b, err := buffer[int32](&r, 3)
	if err != nil {
		return err
	}
	if err := errors.Join(ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum), r.Wait(ctx)); err != nil {
		return err
	}
	fmt.Println("done")
	select {}
}

// TestProcesses: ranks in separate processes meet; when one is killed, the other returns from NCCL, and is told.
func TestProcesses(t *testing.T) {
	rt := newRuntime(t, nil)
	id, err := rt.NewUniqueID()
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	path := library(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), peerID+"="+id.String(), peerDriver+"="+driver.Path(), peerLibrary+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Process.Kill() //nolint:errcheck // it may be dead already

	r, err := retain(driver, 0)
	must(t, err)
	r.Comm, err = rt.InitRank(t.Context(), id, 2, 0, ccl.WithDevice(nccl.New(r.context, path)))
	must(t, err)
	b, err := buffer[int32](&r, 4)
	must(t, err)
	call := func() error { return ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum) }
	must(t, call())
	if got, err := read(&r, b); err != nil || got[0] != 7 {
		t.Fatalf("3 and 4 are %d: %v", got[0], err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "done" {
		t.Fatalf("the other rank says %q: %v", line, err)
	}
	must(t, call())
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	err = r.Wait(t.Context())
	if p, ok := errors.AsType[*ccl.PeerError](err); !ok || p.Code != lifecycle.CodeRankDead || p.Rank != 1 {
		t.Errorf("after its peer was killed rank 0 got %v", err)
	}
	must(t, r.stream.Synchronize())
	must(t, r.Destroy(t.Context()))
}

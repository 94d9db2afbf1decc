//go:build linux && cgo

package cuda_test

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
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// Environment variables of a process that is a rank.
const (
	peerID     = "ENGINE_TEST_ID"
	peerDriver = "ENGINE_TEST_DRIVER"
)

// peer is rank 1 in a separate process: it makes an all-reduce, reports that, and waits to be killed.
func peer() error {
	ctx := context.Background()
	d, err := cuda.Open(os.Getenv(peerDriver))
	if err != nil {
		return err
	}
	dev, err := device(d, 1)
	if err != nil {
		return err
	}
	r, err := open(dev, options)
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
	if r.Comm, err = rt.InitRank(ctx, id, 2, 1, ccl.WithDevice(r.gpu)); err != nil {
		return err
	}
	b, err := buffer(&r, make([]int32, 5000))
	if err != nil {
		return err
	}
	if err := ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum); err != nil {
		return err
	}
	if err := errors.Join(r.Wait(ctx), captured(&r, func() error {
		return ccl.AllReduceOn(ctx, r.Comm, r.stream, b, b, ccl.Sum)
	})); err != nil {
		return err
	}
	fmt.Println("done")
	select {}
}

// TestProcesses checks that ranks in separate processes meet on their GPUs; when one is killed, the other's kernel
// leaves, and its rank is told.
func TestProcesses(t *testing.T) {
	d := driver(t, 2)
	rt := runtime(t)
	id, err := rt.NewUniqueID()
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), peerID+"="+id.String(), peerDriver+"="+d.Path())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Process.Kill() //nolint:errcheck // it may be dead already

	dev, err := d.Device(0)
	must(t, err)
	r := on(t, dev)
	o := &opener{GPU: r.gpu}
	r.Comm, err = rt.InitRank(t.Context(), id, 2, 0, ccl.WithDevice(o))
	must(t, err)
	ones := make([]int32, 5000)
	for i := range ones {
		ones[i] = 7
	}
	b, err := buffer(&r, ones)
	must(t, err)
	call := func() error { return ccl.AllReduceOn(t.Context(), r.Comm, r.stream, b, b, ccl.Sum) }
	must(t, call())
	must(t, r.Wait(t.Context()))
	if got, err := read(&r, b); err != nil || got[0] != 7 || got[4999] != 7 {
		t.Fatalf("7 and 0 are %d and %d: %v", got[0], got[4999], err)
	}
	must(t, errors.Join(captured(&r, call), o.reached(true)))
	if got, err := read(&r, b); err != nil || got[0] != 14 || got[4999] != 14 {
		t.Fatalf("7 and 7 are %d and %d: %v", got[0], got[4999], err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "done" {
		t.Fatalf("the other rank says %q: %v", line, err)
	}
	must(t, call())
	began := time.Now()
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	err = r.Wait(t.Context())
	if p, ok := errors.AsType[*ccl.PeerError](err); !ok || p.Code != lifecycle.CodeRankDead || p.Rank != 1 {
		t.Errorf("after its peer was killed rank 0 got %v", err)
	}
	t.Logf("told after %v", time.Since(began))
	must(t, r.stream.Synchronize())
	must(t, r.Destroy(t.Context()))
}

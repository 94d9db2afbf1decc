package nccl_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/engine/nccl"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// Variables of a process that is a rank.
const (
	peerID      = "CARILLONTEST_NCCL_ID"
	peerDriver  = "CARILLONTEST_NCCL_DRIVER"
	peerLibrary = "CARILLONTEST_NCCL_LIBRARY"
)

// The libraries, in a folder that belongs to the tests.
var (
	folder string
	driver *cuda.Driver
)

const devices = 9

// Variables for running the tests that need no fault on GPUs: the driver, and NCCL.
const (
	realDriver  = "NCCL_TEST_CUDA"
	realLibrary = "NCCL_TEST_NCCL"
)

func TestMain(m *testing.M) {
	if os.Getenv(peerID) != "" {
		if err := peer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := func() int {
		var err error
		if folder, err = os.MkdirTemp("", "carillon-nccl-"); err == nil {
			defer os.RemoveAll(folder)
			err = open()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}()
	os.Exit(code)
}

// open loads the driver: libnccl.so.2 gets the first one that a process has loaded.
func open() (err error) {
	if path := os.Getenv(realDriver); path != "" {
		driver, err = cuda.Open(path)
		return err
	}
	path, err := fakecuda.Build(folder)
	if err != nil {
		return err
	}
	built, err := fakecuda.BuildKernels(folder, "../../kernels/cuda/*.cu")
	if err != nil {
		return err
	}
	if err := os.Setenv("FAKECUDA_KERNELS", built); err != nil {
		return err
	}
	if err := os.Setenv("FAKECUDA_DEVICES", fmt.Sprint(devices)); err != nil {
		return err
	}
	driver, err = cuda.Open(path)
	return err
}

func library(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(realLibrary); path != "" {
		return path
	}
	return fakenccl.BuildOn(tb, folder, "2.28.9", driver.Path())
}

// rank is a rank of a communicator, on a device of its own.
type rank struct {
	*ccl.Comm
	runtime *ccl.Runtime
	context *cuda.Context
	stream  *cuda.Stream
}

func retain(d *cuda.Driver, ordinal int) (r rank, err error) {
	dev, err := d.Device(ordinal)
	if err == nil {
		r.context, err = dev.Retain()
	}
	if err == nil {
		r.stream, err = r.context.Stream(0)
	}
	return r, err
}

func newRuntime(tb testing.TB, w *tape.Writer) *ccl.Runtime {
	tb.Helper()
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Tape: w, Log: slog.New(slog.DiscardHandler)})
	must(tb, err)
	tb.Cleanup(func() { must(tb, rt.Close(context.Background())) })
	return rt
}

// atMost returns n, or the number of devices if that is smaller: NCCL refuses two ranks on one device.
func atMost(tb testing.TB, n int) int {
	tb.Helper()
	there, err := driver.Devices()
	must(tb, err)
	return min(n, there)
}

// ranks makes a communicator of n ranks that uses NCCL.
func ranks(tb testing.TB, n int) []rank {
	tb.Helper()
	path := library(tb)
	return ranksOn(tb, n, newRuntime(tb, nil), func(c *cuda.Context) engine.DeviceKind { return nccl.New(c, path) })
}

func ranksOn(tb testing.TB, n int, rt *ccl.Runtime, kind func(*cuda.Context) engine.DeviceKind) []rank {
	tb.Helper()
	all, comms, err := tryRanks(tb, n, rt, kind)
	must(tb, err)
	for r := range all {
		all[r].Comm = comms[r]
		tb.Cleanup(func() { _ = comms[r].Abort(nil) })
	}
	return all
}

func tryRanks(tb testing.TB, n int, rt *ccl.Runtime, kind func(*cuda.Context) engine.DeviceKind) (
	[]rank, []*ccl.Comm, error,
) {
	tb.Helper()
	all, kinds := make([]rank, n), make([]engine.DeviceKind, n)
	for r := range all {
		var err error
		all[r], err = retain(driver, r)
		must(tb, err)
		all[r].runtime, kinds[r] = rt, kind(all[r].context)
	}
	comms, err := rt.InitAll(tb.Context(), n, ccl.WithDevice(kinds...))
	return all, comms, err
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// each runs do for all ranks in parallel. A rank that fails leaves the communicator, so that no other waits for it.
func each(tb testing.TB, all []rank, do func(r *rank) error) {
	tb.Helper()
	var g errgroup.Group
	for i := range all {
		g.Go(func() error {
			err := do(&all[i])
			if err != nil {
				_ = all[i].Abort(err)
			}
			return err
		})
	}
	must(tb, g.Wait())
}

// buffer returns memory on the rank's device that contains the elements.
func buffer[T kernels.Element](r *rank, data ...T) (cuda.Buffer[T], error) {
	b, err := cuda.Alloc[T](r.context, max(len(data), 1))
	if err == nil {
		err = r.context.CopyToDevice(b.Pointer(), kernels.Bytes(data))
	}
	return b.Slice(0, len(data)), err
}

// read returns the contents of a buffer once all work on the rank's stream is done.
func read[T kernels.Element](r *rank, b cuda.Buffer[T]) ([]T, error) {
	data := make([]T, b.Len())
	if err := r.stream.Synchronize(); err != nil {
		return nil, err
	}
	return data, r.context.CopyToHost(kernels.Bytes(data), b.Pointer())
}

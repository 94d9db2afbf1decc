//go:build linux && cgo

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	gpu "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// library is the path of the fake driver, which has the kernels, or of the driver that realDriver names.
var library string

// realDriver is the environment variable that makes tests run on GPUs: all except those that need more GPUs, or faults.
const realDriver = "ENGINE_TEST_CUDA"

func TestMain(m *testing.M) {
	if os.Getenv(peerID) != "" {
		if err := peer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	dir, err := os.MkdirTemp("", "carillon-engine-")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build(dir string) (err error) {
	if library = os.Getenv(realDriver); library != "" {
		return nil
	}
	if library, err = fakecuda.Build(dir); err != nil {
		return err
	}
	built, err := fakecuda.BuildKernels(dir, filepath.Join("..", "..", "..", "kernels", "cuda", "*.cu"))
	if err == nil {
		err = os.Setenv("FAKECUDA_KERNELS", built)
	}
	return err
}

// options make everything small, so that few bytes take all paths.
var options = gpu.Options{
	Mailbox: 16 << 10, Slots: 768 << 10, Shared: os.Getenv(realDriver) != "",
	Tuning: gpu.Tuning{2: {
		OneShot: 8, OneShotLL128: 20, ReduceScatterLL128: 20, TwoShot: 1200, TwoShotLL128: 7200,
		Copy: 20, CopyLL128: 1200, Push: 20000, ReduceScatterPush: 20000,
	}},
}

// A rank is a rank of a communicator, with its own device.
type rank struct {
	*ccl.Comm
	runtime *ccl.Runtime
	tape    *tape.Writer // shared by all ranks
	gpu     *gpu.GPU
	context *cuda.Context
	stream  *cuda.Stream
}

// driver loads a separate fake driver for the test, with the given number of devices.
func driver(tb testing.TB, devices int, variables ...string) *cuda.Driver {
	tb.Helper()
	if os.Getenv(realDriver) != "" {
		d, err := cuda.Open(library)
		must(tb, err)
		return d
	}
	data, err := os.ReadFile(library)
	must(tb, err)
	path := filepath.Join(tb.TempDir(), "libcuda.so.1")
	must(tb, os.WriteFile(path, data, 0o600))
	for i := 0; i < len(variables); i += 2 {
		must(tb, os.Setenv(variables[i], variables[i+1])) //nolint:usetesting // read by C when it is loaded
		defer func() { must(tb, os.Unsetenv(variables[i])) }()
	}
	must(tb, os.Setenv("FAKECUDA_DEVICES", fmt.Sprint(devices))) //nolint:usetesting // likewise
	d, err := cuda.Open(path)
	must(tb, err)
	return d
}

// device returns a rank's device: its own, if there are enough.
func device(d *cuda.Driver, rank int) (*cuda.Device, error) {
	n, err := d.Devices()
	if err != nil {
		return nil, err
	}
	return d.Device(rank % n)
}

func at(tb testing.TB, d *cuda.Driver, rank int) *cuda.Device {
	tb.Helper()
	dev, err := device(d, rank)
	must(tb, err)
	return dev
}

// ranks makes a communicator of n ranks, each with its own device.
func ranks(tb testing.TB, n int, variables ...string) []rank {
	tb.Helper()
	return ranksWith(tb, n, options, variables...)
}

func ranksWith(tb testing.TB, n int, o gpu.Options, variables ...string) []rank {
	tb.Helper()
	d := driver(tb, n, variables...)
	all := make([]rank, n)
	kinds := make([]engine.DeviceKind, n)
	for r := range all {
		var err error
		all[r], err = open(at(tb, d, r), o)
		must(tb, err)
		kinds[r] = all[r].gpu
	}
	rt, w := onTape(tb)
	comms, err := rt.InitAll(tb.Context(), n, ccl.WithDevice(kinds...))
	must(tb, err)
	for r := range all {
		all[r].Comm, all[r].runtime, all[r].tape = comms[r], rt, w
		tb.Cleanup(func() { _ = comms[r].Abort(nil) })
	}
	return all
}

// on returns a rank's device.
func on(tb testing.TB, dev *cuda.Device) rank {
	tb.Helper()
	r, err := open(dev, options)
	must(tb, err)
	return r
}

func open(dev *cuda.Device, o gpu.Options) (r rank, err error) {
	if r.context, err = dev.Retain(); err != nil {
		return r, err
	}
	if r.gpu, err = gpu.New(r.context, o); err != nil {
		return r, err
	}
	r.stream, err = r.context.Stream(0)
	return r, err
}

func runtime(tb testing.TB) *ccl.Runtime {
	rt, _ := onTape(tb)
	return rt
}

// onTape makes a runtime with its tape.
func onTape(tb testing.TB) (*ccl.Runtime, *tape.Writer) {
	tb.Helper()
	w, err := tape.Create(tape.Config{Dir: tb.TempDir(), Devices: 8})
	must(tb, err)
	rt, err := ccl.New(ccl.Config{Engine: host.Kind(), Log: slog.New(slog.DiscardHandler), Tape: w})
	must(tb, err)
	tb.Cleanup(func() { must(tb, errors.Join(rt.Close(context.Background()), w.Close())) })
	return rt, w
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// each runs something on all ranks at once.
func each(tb testing.TB, all []rank, do func(r *rank) error) {
	tb.Helper()
	var g errgroup.Group
	for i := range all {
		g.Go(func() error { return do(&all[i]) })
	}
	must(tb, g.Wait())
}

// buffer allocates memory of the rank's device with some bytes in it.
func buffer[T kernels.Element](r *rank, data []T) (cuda.Buffer[T], error) {
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

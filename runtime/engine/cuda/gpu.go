//go:build linux && cgo

package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine/queue"
)

// A GPU is a device for the ranks of communicators. It implements engine.DeviceKind and is safe for concurrent use.
type GPU struct {
	context   *cuda.Context
	options   Options
	uuid      [16]byte
	modules   []*cuda.Module
	functions map[string]*cuda.Function
	threads   int // of a block
	blocks    int // that can run at once

	mu   sync.Mutex
	kept []*device // ended communicators whose memory kernels may still access
}

// New loads the kernels into a context, which the caller still owns. It may take seconds, and waits for all work in the
// context. The caller closes the GPU when no communicator uses it any more.
func New(c *cuda.Context, o Options) (g *GPU, err error) {
	if o.Mailbox <= 0 {
		o.Mailbox = 8 << 20
	}
	if o.Slots <= 0 {
		o.Slots = 48 << 20
	}
	o.Mailbox = roundUp(o.Mailbox, kernel.HalfUnit)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Tuning == nil {
		if o.Tuning, err = ReadTuning(os.Getenv(TuningVariable)); err != nil {
			return nil, fmt.Errorf("tuning: %w", err)
		}
	}
	g = &GPU{context: c, options: o, functions: map[string]*cuda.Function{}}
	made := g
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("device %d: %w", c.Device().Ordinal(), err), made.Close())
		}
	}()
	dev := c.Device()
	if g.uuid, _, err = dev.UUID(); err != nil {
		return nil, err
	}
	var of [4]int
	for i, a := range []cuda.Attribute{
		cuda.MaxThreadsPerBlock, cuda.Multiprocessors, cuda.ComputeMajor, cuda.ComputeMinor,
	} {
		if of[i], err = dev.Attribute(a); err != nil {
			return nil, err
		}
	}
	g.threads, g.blocks = min(of[0], kernel.MaxThreads), math.MaxUint16
	if err = g.load(of[2], of[3]); err != nil {
		return nil, err
	}
	for name, f := range g.functions {
		n, err := f.Occupancy(g.threads, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		g.blocks = min(g.blocks, n*of[1])
	}
	if g.blocks == 0 {
		return nil, fmt.Errorf("no block of %d threads fits on a multiprocessor", g.threads)
	}
	return g, nil
}

// load loads cubins if there are some that the driver accepts, otherwise PTX, and looks up all functions.
func (g *GPU) load(major, minor int) error {
	err := g.loadImages(major, minor, false)
	if errors.Is(err, cuda.ErrNoBinary) {
		err = errors.Join(g.Close(), g.loadImages(major, minor, true))
	}
	if errors.Is(err, cuda.ErrUnsupportedPTX) {
		return fmt.Errorf("%w: the driver is older than the kernels, which need CUDA 9.2", err)
	}
	return err
}

func (g *GPU) loadImages(major, minor int, ptx bool) error {
	images, err := kernel.Images(major, minor, ptx)
	if err != nil {
		return err
	}
	for _, image := range images {
		m, err := g.context.Load(image.Code)
		if err != nil {
			return fmt.Errorf("%s: %w", image.Name, err)
		}
		g.modules = append(g.modules, m)
		for _, name := range image.Functions {
			if g.functions[name], err = m.Function(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if image.StartsEarly {
				g.functions[name].AllowEarlyStart()
			}
		}
	}
	return nil
}

// reaches makes memory of another device of the process accessible to kernels, and reports whether that worked.
func (g *GPU) reaches(ordinal uint32) bool {
	peer, err := g.context.Device().Driver().Device(int(ordinal))
	if err != nil {
		return false
	}
	c, err := peer.Retain()
	if err != nil {
		return false
	}
	defer c.Release() //nolint:errcheck // its rank has it, too
	err = g.context.EnablePeer(c)
	return err == nil || errors.Is(err, cuda.ErrPeerEnabled)
}

// linked reports whether this GPU accesses all GPUs with the given ids through its own memory or NVLink, which keep the
// lines of LL128 whole. A GPU that the process doesn't see may be connected through PCIe.
func (g *GPU) linked(ids [][16]byte) bool {
	mine := g.context.Device()
	reached := [][16]byte{g.uuid}
	devices, _ := mine.Driver().Devices()
	for i := range devices {
		peer, err := mine.Driver().Device(i)
		if err != nil || i == mine.Ordinal() || !mine.NativeAtomics(peer) {
			continue
		}
		if id, _, err := peer.UUID(); err == nil {
			reached = append(reached, id)
		}
	}
	return !slices.ContainsFunc(ids, func(id [16]byte) bool { return !slices.Contains(reached, id) })
}

func (g *GPU) keep(d *device) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kept = append(g.kept, d)
}

// Close unloads the kernels, and frees the memory of communicators that ended while their kernels were on a stream or
// in a graph. Those kernels and graphs must not be launched any more. It waits for what runs; if that doesn't end
// within two seconds, it frees nothing and returns an error.
func (g *GPU) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.kept) > 0 {
		if err := g.idle(); err != nil {
			return err
		}
	}
	for _, d := range g.kept {
		d.free()
	}
	g.kept = nil
	var errs []error
	for _, m := range g.modules {
		errs = append(errs, m.Unload())
	}
	g.modules = nil
	return errors.Join(errs...)
}

// idle waits until nothing runs in the context.
func (g *GPU) idle() error {
	ended := make(chan error, 1)
	go func() { ended <- g.context.Synchronize() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(queue.LeaveTime):
		return fmt.Errorf("device %d has been busy for %v: the memory of communicators that have ended stays with it",
			g.context.Device().Ordinal(), queue.LeaveTime)
	}
}

// Name is what the tape calls engines of this package.
func (g *GPU) Name() string { return "cuda" }

// Context returns the context in which the GPU's kernels are loaded.
func (g *GPU) Context() *cuda.Context { return g.context }

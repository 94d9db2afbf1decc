//go:build linux && cgo

package cuda_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
)

const image = ".version 8.0\n.visible .entry add(\n.visible .entry lost(\n\x00"

// add is the parameter of the kernel in testdata.
type add struct {
	words uint64
	by    uint32
	_     uint32
}

// kernel loads the kernel in testdata on a separate device.
func kernel(t *testing.T) (*cuda.Context, *cuda.Function) {
	t.Helper()
	kernels, err := fakecuda.BuildKernels(t.TempDir(), "testdata/kernel.cc")
	must(t, err)
	d := open(t)
	t.Setenv("FAKECUDA_KERNELS", kernels) // read when the first function is looked up
	c := context(t, d, 0)
	m, err := c.Load([]byte(image))
	must(t, err)
	f, err := m.Function("add")
	must(t, err)
	return c, f
}

func words(t *testing.T, c *cuda.Context, at cuda.Pointer, n int) []uint32 {
	t.Helper()
	b, all := make([]byte, 4*n), make([]uint32, n)
	must(t, c.CopyToHost(b, at))
	_, err := binary.Decode(b, binary.NativeEndian, all)
	must(t, err)
	return all
}

func zeros(t *testing.T, c *cuda.Context, bytes int) cuda.Pointer {
	t.Helper()
	p, err := c.Alloc(bytes)
	must(t, err)
	must(t, c.CopyToDevice(p, make([]byte, bytes)))
	return p
}

func TestLaunch(t *testing.T) {
	c, f := kernel(t)
	s := stream(t, c)
	at := zeros(t, c, 6*4)
	must(t, s.Launch(f, 2, 3, 0, unsafe.Pointer(&add{words: uint64(at), by: 7})))
	must(t, s.Synchronize())
	for i, w := range words(t, c, at, 6) {
		if w != 7 {
			t.Errorf("word %d is %d", i, w)
		}
	}
	if n, err := f.Occupancy(32, 0); n < 1 || err != nil {
		t.Errorf("%d blocks of 32 threads fit: %v", n, err)
	}
	if n, err := f.Occupancy(1<<20, 0); n != 0 || err != nil {
		t.Errorf("%d blocks of a million threads fit: %v", n, err)
	}
	if err := s.Launch(f, 1, 1<<20, 0, unsafe.Pointer(&add{})); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Errorf("a block of a million threads: %v", err)
	}
}

// A kernel that does nothing is launched like others; the fake driver finds it in its PTX.
func TestLaunchNothing(t *testing.T) {
	c, behind := kernel(t)
	const ptx = ".version 6.2\n.target sm_70\n.visible .entry nothing(\n.param .b64 p)\n{\n\tret;\n}\n\x00"
	m, err := c.Load([]byte(ptx))
	must(t, err)
	f, err := m.Function("nothing")
	must(t, err)
	s := stream(t, c)
	at := zeros(t, c, 4)
	must(t, s.Launch(f, 1, 32, 0, unsafe.Pointer(&at)))
	must(t, s.Launch(behind, 1, 1, 0, unsafe.Pointer(&add{words: uint64(at), by: 7})))
	must(t, s.Synchronize())
	if got := words(t, c, at, 1)[0]; got != 7 {
		t.Errorf("behind it there is %d, want 7", got)
	}
}

func TestLoadErrors(t *testing.T) {
	c, _ := kernel(t)
	if _, err := c.Load([]byte("no PTX\x00")); err == nil || !strings.Contains(err.Error(), "no .version directive") {
		t.Errorf("text that is no PTX: %v", err)
	}
	m, err := c.Load([]byte(image))
	must(t, err)
	for _, name := range []string{"lost", "sub"} { // only in the image, and nowhere
		if _, err := m.Function(name); !errors.Is(err, cuda.ErrNotFound) {
			t.Errorf("function %s: %v", name, err)
		}
	}
	must(t, m.Unload())
	if _, err := m.Function("add"); !errors.Is(err, cuda.ErrInvalidHandle) {
		t.Errorf("a function of a module that was unloaded: %v", err)
	}
}

// A graph of two streams is launched three times: each time their kernels run in the order of the events between them.
func TestGraph(t *testing.T) {
	c, f := kernel(t)
	first, second := stream(t, c), stream(t, c)
	from, to := zeros(t, c, 4), zeros(t, c, 4)
	fork, err := c.Event(false)
	must(t, err)
	join, err := c.Event(false)
	must(t, err)

	must(t, first.BeginCapture())
	must(t, first.Launch(f, 1, 1, 0, unsafe.Pointer(&add{words: uint64(from), by: 1})))
	must(t, fork.Record(first))
	must(t, second.Wait(fork))
	if captured, err := second.Capturing(); !captured || err != nil {
		t.Errorf("a stream that waits for a captured one is captured: %v, %v", captured, err)
	}
	must(t, second.Copy(to, from, 4))
	must(t, second.Launch(f, 1, 1, 0, unsafe.Pointer(&add{words: uint64(to), by: 10})))
	must(t, join.Record(second))
	must(t, first.Wait(join))
	must(t, first.Launch(f, 1, 1, 0, unsafe.Pointer(&add{words: uint64(from), by: 100})))
	graph, err := first.EndCapture()
	must(t, err)
	if captured, err := second.Capturing(); captured || err != nil {
		t.Errorf("a stream is captured behind the end: %v, %v", captured, err)
	}
	if got := words(t, c, from, 1)[0]; got != 0 {
		t.Errorf("what is captured was done: %d", got)
	}
	x, err := graph.Instantiate()
	must(t, err)
	must(t, graph.Destroy())
	for range 3 {
		must(t, x.Launch(first))
	}
	must(t, first.Synchronize())
	if a, b := words(t, c, from, 1)[0], words(t, c, to, 1)[0]; a != 303 || b != 213 {
		t.Errorf("after three launches there are %d and %d, want 303 and 213", a, b)
	}
	must(t, x.Destroy())
	if err := x.Launch(first); !errors.Is(err, cuda.ErrInvalidValue) {
		t.Errorf("a graph that was destroyed is launched: %v", err)
	}
}

func TestCaptureErrors(t *testing.T) {
	c := context(t, open(t), 0)
	s, other := stream(t, c), stream(t, c)
	e, err := c.Event(false)
	must(t, err)

	must(t, s.BeginCapture())
	if err := s.Synchronize(); err == nil {
		t.Error("a stream that is captured is waited for")
	}
	if _, err := s.EndCapture(); err == nil {
		t.Error("a capture ends well in which its stream was waited for")
	}

	must(t, s.BeginCapture())
	must(t, e.Record(s))
	must(t, other.Wait(e))
	must(t, other.Set(zeros(t, c, 1), 1, 1))
	if _, err := s.EndCapture(); err == nil {
		t.Error("a capture ends well without a stream that it has begun with")
	}

	must(t, e.Record(other))
	must(t, s.BeginCapture())
	if err := s.Wait(e); err == nil {
		t.Error("a captured stream waits for one that is not")
	}
	_, _ = s.EndCapture()
}

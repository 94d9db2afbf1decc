//go:build linux && cgo

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda/fakecuda"
)

// library is the path of the fake driver.
var library string

func TestMain(m *testing.M) {
	if path := os.Getenv("CUDA_TEST_PEER"); path != "" {
		if err := peer(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "carillon-cuda-")
	if err == nil {
		library, err = fakecuda.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// open opens a separate fake driver for the test: a copy, which the loader takes for another library.
func open(tb testing.TB, variables ...string) *cuda.Driver {
	tb.Helper()
	data, err := os.ReadFile(library)
	must(tb, err)
	path := filepath.Join(tb.TempDir(), "libcuda.so.1")
	must(tb, os.WriteFile(path, data, 0o600))
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		must(tb, os.Setenv(name, value)) //nolint:usetesting // it is read when the library is loaded, and in C
		defer func() { must(tb, os.Unsetenv(name)) }()
	}
	d, err := cuda.Open(path)
	must(tb, err)
	return d
}

func context(tb testing.TB, d *cuda.Driver, ordinal int) *cuda.Context {
	tb.Helper()
	dev, err := d.Device(ordinal)
	must(tb, err)
	c, err := dev.Retain()
	must(tb, err)
	tb.Cleanup(func() { must(tb, c.Release()) })
	return c
}

func stream(tb testing.TB, c *cuda.Context) *cuda.Stream {
	tb.Helper()
	s, err := c.Stream(0)
	must(tb, err)
	return s
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func want(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Errorf("got %v, want %v", err, target)
	}
}

func TestOpen(t *testing.T) {
	for path, text := range map[string]string{
		"/nowhere/libcuda.so.1": "No such file",
		"libc.so.6":             "it has no cuInit",
	} {
		_, err := cuda.Open(path)
		want(t, err, cuda.ErrUnavailable)
		if err != nil && (!strings.Contains(err.Error(), text) || strings.Count(err.Error(), path) != 1) {
			t.Errorf("%v: want %q in it, and %q once", err, text, path)
		}
	}
	d := open(t, "FAKECUDA_DEVICES=3")
	n, err := d.Devices()
	must(t, err)
	if n != 3 {
		t.Errorf("%d devices", n)
	}
	_, err = d.Device(3)
	want(t, err, cuda.ErrInvalidDevice)
}

func TestDevice(t *testing.T) {
	for variable, want := range map[string]bool{"FAKECUDA_DEVICES=2": false, "FAKECUDA_MIG=1": true} {
		dev, err := open(t, variable).Device(1)
		must(t, err)
		id, instance, err := dev.UUID()
		must(t, err)
		if !strings.HasSuffix(string(id[:]), "cuda00000001") || instance != want {
			t.Errorf("%s: %q, instance %v", variable, id[:], instance)
		}
		sms, err := dev.Attribute(cuda.Multiprocessors)
		must(t, err)
		if sms != 8 {
			t.Errorf("%d multiprocessors", sms)
		}
	}
}

func TestMemory(t *testing.T) {
	c := context(t, open(t), 0)
	s := stream(t, c)
	const n = 1000
	p, err := c.Alloc(n)
	must(t, err)
	q, err := c.Alloc(n)
	must(t, err)
	in, out := bytes.Repeat([]byte{7}, n), make([]byte, n)
	must(t, c.CopyToDevice(p, in))
	must(t, s.Copy(q, p, n))
	must(t, s.Set(q+n/2, 1, n/2))
	must(t, s.Synchronize())
	must(t, c.CopyToHost(out, q))
	if !bytes.Equal(out[:n/2], in[:n/2]) || !bytes.Equal(out[n/2:], bytes.Repeat([]byte{1}, n/2)) {
		t.Errorf("got %v", out)
	}
	a, err := c.Lookup(p + n/2)
	must(t, err)
	if (a != cuda.Allocation{Base: p, Bytes: n, ID: a.ID, IPC: true}) {
		t.Errorf("%+v", a)
	}

	_, err = c.Alloc(1 << 46)
	want(t, err, cuda.ErrOutOfMemory)
	if text := "cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)"; err.Error() != text {
		t.Errorf("%v, want %s", err, text)
	}
	want(t, c.CopyToHost(make([]byte, n+1), p), cuda.ErrInvalidValue)
	must(t, c.Free(p))
	want(t, c.Free(p), cuda.ErrInvalidValue)
	want(t, s.Copy(q, p, n), cuda.ErrInvalidValue) // freed, so not host memory
	for _, p := range []cuda.Pointer{p, cuda.Pointer(uintptr(unsafe.Pointer(&in[0])))} {
		_, err = c.Lookup(p)
		want(t, err, cuda.ErrInvalidValue)
	}
	must(t, c.Free(q))
	must(t, s.Destroy())
	want(t, s.Query(), cuda.ErrInvalidHandle)
}

func TestPeers(t *testing.T) {
	d := open(t)
	a, b := context(t, d, 0), context(t, d, 1)
	must(t, a.EnablePeer(b))
	want(t, a.EnablePeer(b), cuda.ErrPeerEnabled)

	p, err := a.Alloc(4)
	must(t, err)
	q, err := b.Alloc(4)
	must(t, err)
	must(t, a.CopyToDevice(p, []byte{1, 2, 3, 4}))
	s := stream(t, a)
	must(t, s.Copy(q, p, 4))
	must(t, s.Synchronize())
	out := make([]byte, 4)
	must(t, b.CopyToHost(out, q))
	if !bytes.Equal(out, []byte{1, 2, 3, 4}) {
		t.Errorf("got %v", out)
	}
	if at, err := a.Lookup(q); err != nil || at.Device != 1 {
		t.Errorf("%+v, %v", at, err)
	}
	_, err = b.WrapStream(s.Handle())
	want(t, err, cuda.ErrInvalidContext)
	again, err := a.WrapStream(s.Handle())
	must(t, err)
	must(t, again.Synchronize())

	d = open(t, "FAKECUDA_NO_PEERS=1")
	a, b = context(t, d, 0), context(t, d, 1)
	want(t, a.EnablePeer(b), cuda.ErrPeerUnsupported)
}

// Work on a stream waits: for a value in memory, and for an event of another device.
func TestStream(t *testing.T) {
	d := open(t)
	a, b := context(t, d, 0), context(t, d, 1)
	p, err := a.Alloc(8)
	must(t, err)
	s, other := stream(t, a), stream(t, b)
	begin, err := a.Event(true)
	must(t, err)
	end, err := a.Event(true)
	must(t, err)

	must(t, s.Set(p, 0, 8))
	must(t, begin.Record(s))
	must(t, begin.Synchronize())
	must(t, s.WaitValue(p, 5))
	must(t, s.WriteValue(p+4, 6))
	must(t, end.Record(s))
	must(t, other.Wait(end))
	want(t, s.Query(), cuda.ErrNotReady)
	want(t, end.Query(), cuda.ErrNotReady)
	want(t, other.Query(), cuda.ErrNotReady)
	_, err = begin.Elapsed(end)
	want(t, err, cuda.ErrNotReady)
	want(t, end.Record(other), cuda.ErrInvalidHandle)
	want(t, s.WriteValue(p+1, 0), cuda.ErrInvalidValue)

	third := stream(t, a)
	must(t, third.WriteValue(p, 5))
	must(t, other.Synchronize())
	must(t, s.Synchronize())
	must(t, s.Query())
	must(t, end.Query())
	out := make([]byte, 8)
	must(t, a.CopyToHost(out, p))
	if !bytes.Equal(out, []byte{5, 0, 0, 0, 6, 0, 0, 0}) {
		t.Errorf("got %v", out)
	}
	ms, err := begin.Elapsed(end)
	must(t, err)
	if ms < 0 {
		t.Errorf("%v ms", ms)
	}
	must(t, a.Synchronize())
	must(t, begin.Destroy())
	want(t, begin.Query(), cuda.ErrInvalidHandle)
}

// A failure stays with the context, or affects only one call, depending on its code.
func TestFailure(t *testing.T) {
	c := context(t, open(t, "FAKECUDA_FAIL=cuMemAlloc_v2:2:2,cuMemcpyAsync:700:1"), 0)
	p, err := c.Alloc(1)
	must(t, err)
	_, err = c.Alloc(1)
	want(t, err, cuda.ErrOutOfMemory)
	_, err = c.Alloc(1)
	must(t, err)
	s := stream(t, c)
	for range 2 {
		if err := s.Copy(p, p, 1); !errors.Is(err, cuda.ErrContextLost) || errors.Is(err, cuda.ErrOutOfMemory) {
			t.Errorf("got %v", err)
		}
	}
	want(t, c.Synchronize(), cuda.ErrContextLost)
}

// Other contexts that are current on a thread stay current; one that has ended fails, and doesn't hinder others.
func TestContexts(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := open(t, "FAKECUDA_DEVICES=2")
	a, b := context(t, d, 0), context(t, d, 1)
	must(t, a.Synchronize())
	p, err := b.Alloc(1)
	must(t, err)
	for range 2 {
		at, err := a.Lookup(p)
		must(t, err)
		if at.Device != 1 {
			t.Errorf("allocated on device %d, want 1", at.Device)
		}
	}
	dev, err := open(t).Device(0)
	must(t, err)
	gone, err := dev.Retain()
	must(t, err)
	must(t, gone.Synchronize())
	must(t, gone.Release())
	want(t, gone.Synchronize(), cuda.ErrContextLost)
	want(t, gone.Release(), cuda.ErrInvalidContext)
	must(t, a.Synchronize())
}

// Putting work on a stream allocates nothing.
func TestAllocations(t *testing.T) {
	c := context(t, open(t), 0)
	s := stream(t, c)
	e, err := c.Event(false)
	must(t, err)
	p, err := c.Alloc(8)
	must(t, err)
	n := testing.AllocsPerRun(100, func() {
		must(t, s.Copy(p, p+4, 4))
		must(t, s.WriteValue(p, 1))
		must(t, s.WaitValue(p, 1))
		must(t, e.Record(s))
		must(t, s.Wait(e))
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	must(t, s.Synchronize())
}

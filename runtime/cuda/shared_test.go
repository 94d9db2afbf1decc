//go:build linux && cgo

package cuda_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"github.com/carillon-rt/carillon/runtime/cuda"
)

// peer is another process: it copies memory that it opens by a handle to memory whose descriptor is 3.
func peer(path string) error {
	d, err := cuda.Open(path)
	if err != nil {
		return err
	}
	dev, err := d.Device(1)
	if err != nil {
		return err
	}
	c, err := dev.Retain()
	if err != nil {
		return err
	}
	var h cuda.IPCHandle
	if _, err := hex.Decode(h[:], []byte(os.Getenv("CUDA_TEST_HANDLE"))); err != nil {
		return err
	}
	from, err := c.OpenIPC(h)
	if err != nil {
		return err
	}
	m, err := c.Import(3)
	if err != nil {
		return err
	}
	n, err := c.Granularity()
	if err != nil {
		return err
	}
	to, err := m.Map(n)
	if err != nil {
		return err
	}
	s, err := c.Stream(0)
	if err != nil {
		return err
	}
	if err := s.Copy(to, from, 5); err != nil {
		return err
	}
	if err := s.Synchronize(); err != nil {
		return err
	}
	if a, err := c.Lookup(to); err != nil || a.Device != 0 || a.IPC {
		return fmt.Errorf("%+v, %w", a, err)
	}
	if err := c.Unmap(to, n); err != nil {
		return err
	}
	return c.CloseIPC(from)
}

// Two processes share memory by a legacy handle, and by a descriptor.
func TestProcesses(t *testing.T) {
	c := context(t, open(t), 0)
	p, err := c.Alloc(5)
	must(t, err)
	must(t, c.CopyToDevice(p, []byte("hello")))
	h, err := c.IPCHandle(p)
	must(t, err)
	_, err = c.OpenIPC(h)
	want(t, err, cuda.ErrInvalidContext) // in the same process

	n, err := c.Granularity()
	must(t, err)
	_, err = c.Create(n + 1)
	want(t, err, cuda.ErrInvalidValue)
	m, err := c.Create(n)
	must(t, err)
	q, err := m.Map(n)
	must(t, err)
	_, err = c.IPCHandle(q)
	want(t, err, cuda.ErrInvalidValue)
	fd, err := m.Export()
	must(t, err)
	file := os.NewFile(uintptr(fd), "shared")
	must(t, m.Release()) // it is mapped, so it stays

	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "CUDA_TEST_PEER="+library, "CUDA_TEST_HANDLE="+hex.EncodeToString(h[:]))
	cmd.ExtraFiles = []*os.File{file}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	must(t, file.Close())
	out := make([]byte, 5)
	must(t, c.CopyToHost(out, q))
	if string(out) != "hello" {
		t.Errorf("got %q", out)
	}
	must(t, c.Unmap(q, n))
	want(t, c.Unmap(q, n), cuda.ErrInvalidValue)
	want(t, c.CopyToHost(out, q), cuda.ErrInvalidValue)
	want(t, m.Release(), cuda.ErrInvalidValue)
}

// Devices that can't access each other's memory share host memory.
func TestCreateOnHost(t *testing.T) {
	d := open(t, "FAKECUDA_NO_PEERS=1")
	a, b := context(t, d, 0), context(t, d, 1)
	n, err := a.Granularity()
	must(t, err)
	share := func(m *cuda.Shareable, err error) (mine, theirs cuda.Pointer, failed error) {
		must(t, err)
		fd, err := m.Export()
		must(t, err)
		mine, err = m.Map(n)
		must(t, err)
		other, err := b.Import(fd)
		must(t, err)
		must(t, os.NewFile(uintptr(fd), "shared").Close())
		theirs, failed = other.Map(n)
		must(t, errors.Join(m.Release(), other.Release()))
		return mine, theirs, failed
	}
	mine, _, err := share(a.Create(n))
	want(t, err, cuda.ErrInvalidDevice)
	must(t, a.Unmap(mine, n))
	mine, theirs, err := share(a.CreateOnHost(n))
	must(t, err)
	must(t, a.CopyToDevice(mine, []byte("hello")))
	out := make([]byte, 5)
	must(t, b.CopyToHost(out, theirs))
	if string(out) != "hello" {
		t.Errorf("got %q", out)
	}
	if at, err := b.Lookup(theirs); err != nil || !at.Host {
		t.Errorf("%+v, %v", at, err)
	}
	must(t, errors.Join(a.Unmap(mine, n), b.Unmap(theirs, n)))
}

// A stream writes into host memory.
func TestRegister(t *testing.T) {
	c := context(t, open(t), 0)
	memory, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED|syscall.MAP_ANON)
	must(t, err)
	at := unsafe.Pointer(&memory[0])
	p, err := c.Register(at, len(memory))
	must(t, err)
	_, err = c.Register(at, len(memory))
	want(t, err, cuda.ErrAlreadyRegistered)
	a, err := c.Lookup(p + 8)
	must(t, err)
	if !a.Host || a.Base != p || a.Bytes != uint64(len(memory)) {
		t.Errorf("%+v", a)
	}
	s := stream(t, c)
	must(t, s.WriteValue(p+8, 0x01020304))
	must(t, s.Synchronize())
	if !bytes.Equal(memory[8:12], []byte{4, 3, 2, 1}) {
		t.Errorf("got %v", memory[8:12])
	}
	must(t, c.Unregister(at))
	want(t, c.Unregister(at), cuda.ErrNotRegistered)
	want(t, s.WriteValue(p, 0), cuda.ErrInvalidValue)
}

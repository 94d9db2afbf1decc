//go:build linux && (amd64 || arm64)

package hole

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const size = 16 << 12

// mapped is a file of size bytes, and its mapping.
func mapped(t *testing.T) (f *os.File, mem []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		mem, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Munmap(mem)
		_ = f.Close()
	})
	return f, mem
}

func truncate(t *testing.T, f *os.File, to int64) {
	t.Helper()
	if err := f.Truncate(to); err != nil {
		t.Fatal(err)
	}
}

func TestTruncatedFile(t *testing.T) {
	f, mem := mapped(t)
	r := Protect(mem)
	defer r.Release()
	mem[0], mem[size-1] = 1, 2
	truncate(t, f, size/2)
	if mem[0] != 1 || r.Lost() {
		t.Error("what is left of the file is lost before anybody asks for more")
	}
	mem[size-1] = 3
	if !r.Lost() || mem[0] != 0 || mem[size-1] != 3 {
		t.Errorf("lost %v; the memory has %d and %d, want 0 and 3", r.Lost(), mem[0], mem[size-1])
	}
	var first [1]byte
	if _, err := f.ReadAt(first[:], 0); err != nil || first[0] != 1 {
		t.Errorf("the file has %d, %v: it was written to", first[0], err)
	}
}

// Goroutines that write when the file is cut are not disturbed, wherever they are.
func TestTruncatedWhileWritten(t *testing.T) {
	for range 20 {
		f, mem := mapped(t)
		r := Protect(mem)
		var writers sync.WaitGroup
		var stop atomic.Bool
		for i := range 4 {
			word := (*uint64)(unsafe.Pointer(&mem[i*size/4]))
			writers.Go(func() {
				for !stop.Load() {
					atomic.AddUint64(word, 1)
				}
			})
		}
		truncate(t, f, 0)
		for !r.Lost() {
			atomic.AddUint64((*uint64)(unsafe.Pointer(&mem[8])), 1)
		}
		stop.Store(true)
		writers.Wait()
		r.Release()
	}
}

// faults tells whether an access to memory is a fault, by Go's own handler.
func faults(at *byte) (yes bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { yes = recover() != nil }()
	*at = 1
	return false
}

func TestOtherFaultsAreGos(t *testing.T) {
	f, mem := mapped(t)
	Protect(mem).Release()
	truncate(t, f, 0)
	if !faults(&mem[0]) {
		t.Error("memory that is not protected any more goes on")
	}
	other, also := mapped(t)
	r := Protect(also[:size/2])
	defer r.Release()
	truncate(t, other, 0)
	if !faults(&also[size/2]) || r.Lost() {
		t.Error("memory behind what is protected goes on")
	}
	if faults(&also[size/2-1]) || !r.Lost() {
		t.Error("protected memory does not")
	}
}

// Regions are reused, and reuse doesn't drop other regions.
func TestRegionsAreUsedAgain(t *testing.T) {
	_, mem := mapped(t)
	before := Protect(mem)
	before.Release()
	f, also := mapped(t)
	r, s := Protect(mem), Protect(also)
	defer r.Release()
	defer s.Release()
	if r != before {
		t.Error("a released region is not used again")
	}
	truncate(t, f, 0)
	also[0] = 1
	if !s.Lost() || r.Lost() {
		t.Errorf("lost is %v of the cut file and %v of the whole one", s.Lost(), r.Lost())
	}
}

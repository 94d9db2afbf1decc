package kernels

import (
	"math/rand/v2"
	"syscall"
	"testing"
)

// fenced returns n bytes that end, or begin, next to memory where any access faults.
func fenced(t *testing.T, n int, atEnd bool) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	inner := (n + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, inner+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	for _, fence := range [][]byte{m[:page], m[page+inner:]} {
		if err := syscall.Mprotect(fence, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if atEnd {
		return m[page+inner-n : page+inner]
	}
	return m[page : page+n]
}

// TestNothingOutsideIsTouched reads and writes at the very edge of memory, as at the end of shared rings.
func TestNothingOutsideIsTouched(t *testing.T) {
	const most = 300 * 8
	for _, atEnd := range []bool{true, false} {
		dst, a, b := fenced(t, most, atEnd), fenced(t, most, atEnd), fenced(t, most, atEnd)
		edge := func(s []byte, n int) []byte {
			if atEnd {
				return s[len(s)-n:]
			}
			return s[:n]
		}
		eachKernel(t, func(t *testing.T, dt DataType, op Reduction, vector, plain Reducer) {
			r := rand.New(rand.NewPCG(7, uint64(dt)))
			for count := range 300 {
				n := count * dt.Size()
				d, x, y := edge(dst, n), edge(a, n), edge(b, n)
				copy(x, random(r, dt, count))
				copy(y, random(r, dt, count))
				want := make([]byte, n)
				plain(want, x, y)
				vector(d, x, y)
				if diff := diff(dt, x, y, d, want); diff != "" {
					t.Fatal(diff)
				}
			}
		})
		for _, level := range levels() {
			for dt := range numDataTypes {
				for count := range 300 {
					n := count * dt.Size()
					scaleWith(level, edge(dst, n), edge(a, n), dt, 0.5)
					divideWith(level, edge(dst, n), dt, 2)
				}
			}
		}
	}
}

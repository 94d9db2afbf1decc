package kernels

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// reduceAt reduces with its three buffers at the given offsets from aligned memory, and checks that nothing around dst
// was written.
func reduceAt(t *testing.T, reduce Reducer, a, b []byte, offDst, offA, offB int) []byte {
	t.Helper()
	const margin = 64
	n := len(a)
	place := func(content []byte, off int) (whole, part []byte) {
		whole = bytes.Repeat([]byte{0xa5}, n+off+margin)
		copy(whole[off:], content)
		return whole, whole[off : off+n]
	}
	around, dst := place(bytes.Repeat([]byte{0x5a}, n), offDst)
	_, x := place(a, offA)
	_, y := place(b, offB)
	reduce(dst, x, y)
	if outside := append(around[:offDst:offDst], around[offDst+n:]...); bytes.Count(outside,
		[]byte{0xa5}) != len(outside) {
		t.Fatalf("%d bytes at offset %d: wrote outside: %x", n, offDst, outside)
	}
	return dst
}

func TestVectorsAgreeAtEveryLength(t *testing.T) {
	eachKernel(t, func(t *testing.T, dt DataType, _ Reduction, vector, plain Reducer) {
		r := rand.New(rand.NewPCG(1, uint64(dt)))
		lengths := []int{(256<<10)/dt.Size() + 7, 1 << 16} // the first is slightly more than a block
		for n := range 301 {
			lengths = append(lengths, n)
		}
		for _, n := range lengths {
			a, b := random(r, dt, n), random(r, dt, n)
			want := make([]byte, len(a))
			plain(want, a, b)
			if d := diff(dt, a, b, reduceAt(t, vector, a, b, n%64, (n+7)%64, (n+13)%64), want); d != "" {
				t.Fatal(d)
			}
		}
	})
}

func TestVectorsAgreeAtEveryOffset(t *testing.T) {
	eachKernel(t, func(t *testing.T, dt DataType, _ Reduction, vector, plain Reducer) {
		r := rand.New(rand.NewPCG(2, uint64(dt)))
		for _, n := range []int{5, 77, 270} {
			a, b := random(r, dt, n), random(r, dt, n)
			want := make([]byte, len(a))
			plain(want, a, b)
			for off := range 64 {
				for _, offs := range [][3]int{
					{off, 0, 0}, {0, off, 0}, {0, 0, off}, {off, off, off}, {off, 63 - off, off ^ 21},
				} {
					if d := diff(dt, a, b, reduceAt(t, vector, a, b, offs[0], offs[1], offs[2]), want); d != "" {
						t.Fatalf("offsets %v: %s", offs, d)
					}
				}
			}
		}
	})
}

func TestVectorsAgreeOnSpecialValues(t *testing.T) {
	eachKernel(t, func(t *testing.T, dt DataType, _ Reduction, vector, plain Reducer) {
		a, b := pairs(dt)
		got, want := make([]byte, len(a)), make([]byte, len(a))
		vector(got, a, b)
		plain(want, a, b)
		if d := diff(dt, a, b, got, want); d != "" {
			t.Fatal(d)
		}
	})
}

// TestVectorsAgreeOnEveryHalf combines each of the 65,536 numbers with special values, in both orders.
func TestVectorsAgreeOnEveryHalf(t *testing.T) {
	eachKernel(t, func(t *testing.T, dt DataType, _ Reduction, vector, plain Reducer) {
		if dt != Float16 && dt != BFloat16 {
			return
		}
		const n = 1 << 16
		all, got, want := make([]byte, 2*n), make([]byte, 2*n), make([]byte, 2*n)
		for i := range n {
			put(all, dt, i, uint64(i))
		}
		specials := special(dt)
		for i := 0; i < len(specials); i += 3 {
			one := make([]byte, 2)
			put(one, dt, 0, specials[i])
			one = bytes.Repeat(one, n)
			for _, ab := range [][2][]byte{{all, one}, {one, all}} {
				vector(got, ab[0], ab[1])
				plain(want, ab[0], ab[1])
				if d := diff(dt, ab[0], ab[1], got, want); d != "" {
					t.Fatal(d)
				}
			}
		}
	})
}

func TestReduceInPlace(t *testing.T) {
	for _, level := range append(levels(), NoSIMD) {
		for dt := range numDataTypes {
			for op := range numReductions {
				r := rand.New(rand.NewPCG(3, uint64(dt)))
				reduce := reducerFor(level, dt, op)
				for _, n := range []int{1, 63, 1000} {
					a, b := random(r, dt, n), random(r, dt, n)
					want := make([]byte, len(a))
					reduce(want, a, b)
					intoA, intoB := bytes.Clone(a), bytes.Clone(b)
					reduce(intoA, intoA, b)
					reduce(intoB, a, intoB)
					if d := diff(dt, a, b, intoA, want); d != "" {
						t.Fatalf("%v %v %v: dst is a: %s", level, dt, op, d)
					}
					if d := diff(dt, a, b, intoB, want); d != "" {
						t.Fatalf("%v %v %v: dst is b: %s", level, dt, op, d)
					}
					same := bytes.Clone(a)
					reduce(want, a, a)
					reduce(same, same, same)
					if d := diff(dt, a, a, same, want); d != "" {
						t.Fatalf("%v %v %v: all are one: %s", level, dt, op, d)
					}
				}
			}
		}
	}
}

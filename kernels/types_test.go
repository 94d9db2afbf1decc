package kernels

import (
	"strings"
	"testing"
	"unsafe"
)

func TestNamesReadBack(t *testing.T) {
	for s := range numSIMD {
		var got SIMD
		if err := got.UnmarshalText([]byte(strings.ToUpper(s.String()))); err != nil || got != s {
			t.Errorf("UnmarshalText(%q) = %v, %v", s, got, err)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	var s SIMD
	err := s.UnmarshalText([]byte("sse2"))
	want := `kernels: unknown vector instruction set "sse2" (want one of off, avx2, avx512)`
	if err == nil || err.Error() != want || s != NoSIMD {
		t.Errorf("sse2 became %v, %v, want %s", s, err, want)
	}
}

func TestNotValid(t *testing.T) {
	if d := numDataTypes; d.Valid() || d.Size() != 0 || d.String() != "DataType(12)" {
		t.Errorf("data type 12 is %v of %d bytes, valid %v", d, d.Size(), d.Valid())
	}
	if r := numReductions; r.Valid() || r.String() != "Reduction(6)" {
		t.Errorf("reduction 6 is %v, valid %v", r, r.Valid())
	}
	if s := numSIMD; s.String() != "SIMD(3)" {
		t.Errorf("SIMD 3 is %v", s)
	}
}

func element[T Element](t *testing.T, want DataType) {
	t.Helper()
	var zero T
	if got := TypeOf[T](); got != want {
		t.Errorf("TypeOf[%T] = %v, want %v", zero, got, want)
	}
	if got := want.Size(); got != int(unsafe.Sizeof(zero)) {
		t.Errorf("%v.Size() = %d, want %d", want, got, unsafe.Sizeof(zero))
	}
	s := make([]T, 3)
	b := Bytes(s[:2])
	if len(b) != 2*want.Size() || cap(b) != len(b) {
		t.Errorf("Bytes of 2 %v: length %d, capacity %d", want, len(b), cap(b))
	}
	b[len(b)-1] = 1
	if s[1] == 0 || s[2] != 0 {
		t.Errorf("Bytes of %v is not the memory of the slice", want)
	}
	if b := Bytes[T](nil); len(b) != 0 {
		t.Errorf("Bytes of no %v has %d bytes", want, len(b))
	}
}

func TestElements(t *testing.T) {
	element[int8](t, Int8)
	element[uint8](t, Uint8)
	element[int32](t, Int32)
	element[uint32](t, Uint32)
	element[int64](t, Int64)
	element[uint64](t, Uint64)
	element[F16](t, Float16)
	element[float32](t, Float32)
	element[float64](t, Float64)
	element[BF16](t, BFloat16)
	element[E4M3](t, Float8E4M3)
	element[E5M2](t, Float8E5M2)
}

// Types that a program defines from a number type, and types whose size depends on the machine.
type (
	loss  float32
	token int32
	count int
	octet byte
)

func TestNamedElements(t *testing.T) {
	element[loss](t, Float32)
	element[token](t, Int32)
	element[octet](t, Uint8)
	whole, natural := Int64, Uint64
	if unsafe.Sizeof(int(0)) == 4 {
		whole, natural = Int32, Uint32
	}
	element[int](t, whole)
	element[count](t, whole)
	element[uint](t, natural)
}

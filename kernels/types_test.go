package kernels

import (
	"strings"
	"testing"
	"unsafe"
)

func TestNamesReadBack(t *testing.T) {
	for d := range numDataTypes {
		if got, err := ParseDataType(strings.ToUpper(d.String())); err != nil || got != d {
			t.Errorf("ParseDataType(%q) = %v, %v", d, got, err)
		}
	}
	for r := range numReductions {
		if got, err := ParseReduction(r.String()); err != nil || got != r {
			t.Errorf("ParseReduction(%q) = %v, %v", r, got, err)
		}
	}
	for s := range numSIMD {
		var got SIMD
		text, err := s.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := got.UnmarshalText(text); err != nil || got != s {
			t.Errorf("UnmarshalText(%q) = %v, %v", text, got, err)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	_, err := ParseDataType("float128")
	want := `kernels: unknown data type "float128" (want one of int8, uint8, int32, uint32, int64, uint64, ` +
		`float16, float32, float64, bfloat16, float8_e4m3, float8_e5m2)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %v", err, want)
	}
	if _, err = ParseReduction(""); err == nil {
		t.Error("an empty reduction was accepted")
	}
	var s SIMD
	if err = s.UnmarshalText([]byte("sse2")); err == nil || s != NoSIMD {
		t.Errorf("sse2 became %v, %v", s, err)
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

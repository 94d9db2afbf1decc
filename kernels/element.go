package kernels

import (
	"reflect"
	"unsafe"
)

// F16 is an IEEE 754 binary16 number, held as its bits.
type F16 uint16

// BF16 is a bfloat16 number (the upper half of a float32), held as its bits.
type BF16 uint16

// E4M3 is an OCP 8-bit float with 4 exponent and 3 mantissa bits (no infinities), held as its bits.
type E4M3 uint8

// E5M2 is an OCP 8-bit float with 5 exponent and 2 mantissa bits, held as its bits.
type E5M2 uint8

// Element is any Go type that a buffer may hold: a number of fixed size, int, uint, and types whose underlying type is
// one of these (type Loss float32). A type defined from E4M3 or E5M2 counts as its underlying type, uint8.
type Element interface {
	~int8 | ~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~int | ~uint | ~float32 | ~float64 | F16 | BF16
}

// TypeOf returns the data type of a Go type. int and uint map to the type with their size on this machine; all
// processes of a job agree on that, unless their machines differ.
func TypeOf[T Element]() DataType {
	var zero T
	kind := reflect.TypeFor[T]().Kind()
	if kind == reflect.Float32 { // fast path for the most common type
		return Float32
	}
	switch any(zero).(type) {
	case F16:
		return Float16
	case BF16:
		return BFloat16
	case E4M3:
		return Float8E4M3
	case E5M2:
		return Float8E5M2
	}
	switch kind {
	case reflect.Int8:
		return Int8
	case reflect.Uint8:
		return Uint8
	case reflect.Int32:
		return Int32
	case reflect.Uint32:
		return Uint32
	case reflect.Float64:
		return Float64
	case reflect.Int, reflect.Int64:
		if unsafe.Sizeof(zero) == 4 {
			return Int32
		}
		return Int64
	default:
		if unsafe.Sizeof(zero) == 4 {
			return Uint32
		}
		return Uint64
	}
}

// Bytes returns the memory of s, without a copy: writes to one are visible in the other.
func Bytes[T Element](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// view is the inverse of Bytes. An incomplete last element is left out.
func view[T Element](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// operands views the three buffers of a reduction as elements, as many as dst has.
func operands[T Element](dst, a, b []byte) (d, x, y []T) {
	d = view[T](dst)
	return d, view[T](a)[:len(d)], view[T](b)[:len(d)]
}

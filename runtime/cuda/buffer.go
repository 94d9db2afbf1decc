package cuda

import "unsafe"

// A Pointer is an address that a GPU reads and writes. With unified addressing, which every current GPU has, the
// addresses of different devices differ, and none is the host's.
type Pointer uint64

// A Buffer is n elements of a device's memory. It doesn't own the memory.
type Buffer[T any] struct {
	at Pointer
	n  int
}

// Wrap makes a Buffer of n elements at an address, whoever allocated them.
func Wrap[T any](at Pointer, n int) Buffer[T] { return Buffer[T]{at, n} }

// Pointer returns the buffer's address.
func (b Buffer[T]) Pointer() Pointer { return b.at }

// Len returns the number of elements.
func (b Buffer[T]) Len() int { return b.n }

// Slice returns elements i to j-1. It panics if they are not all in the buffer.
func (b Buffer[T]) Slice(i, j int) Buffer[T] {
	if i < 0 || j < i || j > b.n {
		panic("cuda: slice bounds out of range")
	}
	return Buffer[T]{b.at + Pointer(i*int(unsafe.Sizeof(*new(T)))), j - i}
}

// Addresses returns the buffer's bytes as a slice of which only the address and the length may be used, as the host
// can't read the memory.
func (b Buffer[T]) Addresses() []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&b.at)), b.n*int(unsafe.Sizeof(*new(T))))
}

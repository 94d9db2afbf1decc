//go:build !amd64

package transport

// prefetch makes the processor fetch a cache line, on architectures where that is implemented.
func prefetch(*byte) {}

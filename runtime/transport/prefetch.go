//go:build !amd64

package transport

// prefetch has the processor fetch a cache line, where that is known how.
func prefetch(*byte) {}

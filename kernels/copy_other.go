//go:build !amd64

package kernels

// pastCaches copies nothing: Go's copy is all there is for this architecture.
func pastCaches(_, _ []byte) (from, to int) { return 0, 0 }

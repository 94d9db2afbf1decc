//go:build !linux || !cgo

package nccl

import "fmt"

// A Library can't be had in this program.
type Library struct{}

// Open says that a program like this one can't load NCCL: it is not for Linux, or was built without cgo.
func Open(string) (*Library, error) {
	return nil, fmt.Errorf("%w can be loaded: it needs Linux, and a program built with cgo (CGO_ENABLED=1)", ErrUnavailable)
}

//go:build !linux || !cgo

package cuda

import (
	"context"

	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// A GPU is not available in this program: cuda.Open says why.
type GPU struct{}

// Name is what the tape calls engines of this package.
func (*GPU) Name() string { return "cuda" }

// Open fails.
func (*GPU) Open(context.Context, *engine.Comm, func([]byte) ([][]byte, error), func(error)) (engine.Device, error) {
	_, err := cuda.Open("")
	return nil, err
}

//go:build !linux || !cgo

package node

import (
	"fmt"

	"github.com/carillon-rt/carillon/runtime/cuda"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// newDevice says that this program can't load a driver, if a GPU was asked for.
func newDevice(s *settings) (*enginecuda.GPU, func() error, error) {
	if s.Device == nil {
		return nil, nil, nil
	}
	_, err := cuda.Open("")
	return nil, nil, fmt.Errorf("the GPU of rank %d: %w", s.World.Rank, err)
}

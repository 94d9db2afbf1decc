//go:build !linux || !cgo

package bench

import (
	"context"
	"io"

	"github.com/carillon-rt/carillon/runtime/cuda"
)

// GPUs says that this program can't load a driver.
func GPUs(context.Context, Setup, int, io.Writer) ([]GPUResult, error) {
	_, err := cuda.Open("")
	return nil, err
}

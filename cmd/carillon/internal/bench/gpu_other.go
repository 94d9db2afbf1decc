//go:build !linux || !cgo

package bench

import (
	"context"
	"io"

	"github.com/carillon-rt/carillon/runtime/cuda"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

// GPUs always fails: this build can't load a driver.
func GPUs(context.Context, Setup, []Collective, int, bool, io.Writer) ([]GPUResult, error) {
	_, err := cuda.Open("")
	return nil, err
}

// Tune always fails: this build can't load a driver.
func Tune(context.Context, Setup, []int, []int, io.Writer) (enginecuda.Tuning, error) {
	_, err := cuda.Open("")
	return nil, err
}

//go:build !linux || !cgo

package native

import (
	"errors"

	"github.com/carillon-rt/carillon/runtime/profiler"
)

// New makes a plug-in that can't be loaded in this program; its Init returns that as an error.
func New(path string) profiler.Plugin { return plugin(path) }

type plugin string

func (p plugin) Name() string      { return string(p) }
func (plugin) Mask() profiler.Mask { return 0 }

func (plugin) Init(profiler.Info) (profiler.Recorder, error) {
	return nil, errors.New("it can't be loaded: that needs Linux, and a program built with cgo (CGO_ENABLED=1)")
}

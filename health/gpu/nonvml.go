//go:build !cgo || !linux

package gpu

import "fmt"

// noDriver stands for NVML in a program that can't load it.
type noDriver struct{}

func newDriver() driver { return noDriver{} }

func (noDriver) open() error {
	return fmt.Errorf("%w can be looked for: this program was built without cgo (CGO_ENABLED=1), which NVML needs",
		errNoDriver)
}

func (noDriver) devices(visibility) ([]device, error) { return nil, errNoDriver }

func (noDriver) newEvents() (events, error) { return nil, errNoDriver }

func (noDriver) turn() func() { return func() {} }

func (noDriver) close() {}

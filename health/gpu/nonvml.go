//go:build !cgo || !linux

package gpu

import "fmt"

// noDriver stands for NVML in a program that can't load it. A Monitor calls nothing else of a driver that can't be
// opened.
type noDriver struct{ driver }

func newDriver() driver { return noDriver{} }

func (noDriver) open() error {
	return fmt.Errorf("%w can be looked for: this program was built without cgo (CGO_ENABLED=1), which NVML needs",
		errNoDriver)
}

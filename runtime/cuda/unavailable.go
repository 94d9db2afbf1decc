//go:build !linux || !cgo

package cuda

import "fmt"

// A Driver is not available in this program.
type Driver struct{}

// A Stream is not available either.
type Stream struct{}

// Open fails: a program like this one can't load the driver, as it is not for Linux, or was built without cgo.
func Open(string) (*Driver, error) {
	return nil, fmt.Errorf("%w can be loaded: it needs Linux, and a program built with cgo (CGO_ENABLED=1)", ErrUnavailable)
}

//go:build !linux

package tape

import (
	"errors"
	"os"
)

// News exists on Linux only.
type News struct{}

// NewNews fails.
func NewNews() (*News, error) { return nil, errors.ErrUnsupported }

// Add does nothing.
func (*News) Add(string) {}

// Wait fails.
func (*News) Wait() error { return os.ErrClosed }

// Close does nothing.
func (*News) Close() error { return nil }

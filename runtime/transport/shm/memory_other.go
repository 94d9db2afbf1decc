//go:build !linux

package shm

import "errors"

// errNone is the error where the kernel has no memory that can be shared, sealed, and opened through its owner's pid.
var errNone = errors.New("shared memory between processes needs Linux")

// CreateMemory fails.
func CreateMemory([]byte, int64) (int, error) { return -1, errNone }

// OpenMemory fails.
func OpenMemory(int, int, []byte, int64) (*Memory, error) { return nil, errNone }

func free([]byte) {}

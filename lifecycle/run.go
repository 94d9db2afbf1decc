package lifecycle

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// Run distinguishes one start of a job from all others, whatever the job's name: rank 0 makes it, and the other ranks
// learn it when they meet. 0 is unknown.
type Run uint64

// NewRun makes a Run that no other job has.
func NewRun() Run {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return Run(max(binary.LittleEndian.Uint64(b[:]), 1))
}

// String is the run as 16 hexadecimal digits; empty if unknown.
func (r Run) String() string {
	if r == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(r))
}

// MarshalText is String.
func (r Run) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

package kernels

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// SIMD names a set of vector instructions. Each includes those before it.
type SIMD uint8

// The sets of vector instructions.
const (
	NoSIMD SIMD = iota // plain Go
	AVX2               // AVX2 and F16C
	AVX512             // AVX-512 F, BW and DQ, and BMI2
	numSIMD
)

// String returns the name that [ParseSIMD] reads: "off", "avx2" or "avx512".
func (s SIMD) String() string {
	if s >= numSIMD {
		return fmt.Sprintf("SIMD(%d)", uint8(s))
	}
	return [numSIMD]string{NoSIMD: "off", AVX2: "avx2", AVX512: "avx512"}[s]
}

// ParseSIMD reads "off", "avx2" or "avx512", in any case.
func ParseSIMD(name string) (SIMD, error) {
	return parse[SIMD]("vector instruction set", strings.TrimSpace(name), numSIMD)
}

// UnmarshalText sets s as [ParseSIMD] reads it, so that a configuration can hold a SIMD.
func (s *SIMD) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSIMD(string(text))
	return err
}

// MarshalText returns s's name.
func (s SIMD) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// DetectSIMD returns the widest set that both the processor and the operating system support. It asks once.
func DetectSIMD() SIMD { return detected() }

var detected = sync.OnceValue(detect)

// limit is how far LimitSIMD lowered what is used, as steps below the widest set there is, so that the zero value
// is no limit at all. It is the one variable of this package that changes: which instructions to use is a property
// of the process, as with GODEBUG's cpu.* settings, and it never changes a result.
type limit struct{ steps atomic.Uint32 }

func (l *limit) set(s SIMD) { l.steps.Store(uint32(numSIMD - 1 - min(s, numSIMD-1))) }

// of returns what is used where best is what there is.
func (l *limit) of(best SIMD) SIMD { return min(best, numSIMD-1-SIMD(l.steps.Load())) }

var ceiling limit

// LimitSIMD makes the whole process use nothing beyond s from now on, for instance as CARILLON_SIMD says, and
// returns what is used then: the lesser of s and [DetectSIMD]. Reducers that were looked up earlier stay as they are.
func LimitSIMD(s SIMD) SIMD {
	ceiling.set(s)
	return ActiveSIMD()
}

// ActiveSIMD returns what [ReducerOf] uses now.
func ActiveSIMD() SIMD { return ceiling.of(detected()) }

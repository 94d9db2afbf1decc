package kernels

import (
	"fmt"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// SIMD is a set of vector instructions. Each set includes the previous ones.
type SIMD uint8

// The sets of vector instructions.
const (
	NoSIMD SIMD = iota // plain Go
	AVX2               // AVX2 and F16C
	AVX512             // AVX-512 F, BW and DQ, and BMI2
	numSIMD
)

// String returns the name that UnmarshalText reads: "off", "avx2" or "avx512".
func (s SIMD) String() string { return nameOf("SIMD", simdNames[:], s) }

// UnmarshalText reads "off", "avx2" or "avx512", in any case.
func (s *SIMD) UnmarshalText(text []byte) error {
	for known := range numSIMD {
		if strings.EqualFold(strings.TrimSpace(string(text)), known.String()) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("kernels: unknown vector instruction set %q (want one of off, avx2, avx512)", text)
}

// DetectSIMD returns the widest set that both the processor and the operating system support.
func DetectSIMD() SIMD {
	x := &cpu.X86 // all false on other processors
	switch {
	case !x.HasAVX2 || !x.HasF16C:
		return NoSIMD
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasBMI2:
		return AVX512
	default:
		return AVX2
	}
}

// lowered is how far LimitSIMD lowered the limit, in steps below the widest set, so that zero means no limit. It is the
// only variable state of this package: which instructions to use is a property of the process, as with GODEBUG's cpu.*
// settings, and it never changes a result.
var lowered atomic.Uint32

// LimitSIMD makes the whole process use nothing beyond s from now on, for instance because of CARILLON_SIMD, and
// returns the set in use: the lesser of s and [DetectSIMD]. Reducers that were looked up earlier stay unchanged.
func LimitSIMD(s SIMD) SIMD {
	lowered.Store(uint32(AVX512 - min(s, AVX512)))
	return activeSIMD()
}

// activeSIMD returns the set that [ReducerOf] uses now.
func activeSIMD() SIMD { return min(DetectSIMD(), AVX512-SIMD(lowered.Load())) }

package kernels

// cpuid asks the processor what it can do.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

// xgetbv returns which registers the operating system saves for each thread (XCR0). It faults if cpuid's OSXSAVE
// bit is not set.
func xgetbv() (eax, edx uint32)

// The bits that matter, by leaf and register. From Intel's Software Developer's Manual, volume 2A, CPUID, and
// volume 1, section 13.3; AMD's are the same.
const (
	leaf1OSXSAVE = 1 << 27 // ecx
	leaf1AVX     = 1 << 28
	leaf1F16C    = 1 << 29

	leaf7AVX2     = 1 << 5 // ebx
	leaf7BMI2     = 1 << 8
	leaf7AVX512F  = 1 << 16
	leaf7AVX512DQ = 1 << 17
	leaf7AVX512BW = 1 << 30

	savesYMM = 1<<1 | 1<<2                   // xmm, upper halves of ymm
	savesZMM = savesYMM | 1<<5 | 1<<6 | 1<<7 // and masks, upper halves of zmm, zmm16 to zmm31
)

func detect() SIMD {
	if leaves, _, _, _ := cpuid(0, 0); leaves < 7 {
		return NoSIMD
	}
	_, _, ecx1, _ := cpuid(1, 0)
	_, ebx7, _, _ := cpuid(7, 0)
	if !has(ecx1, leaf1OSXSAVE|leaf1AVX|leaf1F16C) {
		return NoSIMD
	}
	saved, _ := xgetbv()
	switch {
	case has(ebx7, leaf7AVX2|leaf7BMI2|leaf7AVX512F|leaf7AVX512DQ|leaf7AVX512BW) && has(saved, savesZMM):
		return AVX512
	case has(ebx7, leaf7AVX2) && has(saved, savesYMM):
		return AVX2
	default:
		return NoSIMD
	}
}

func has(word, bits uint32) bool { return word&bits == bits }

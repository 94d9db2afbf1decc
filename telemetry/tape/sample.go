package tape

import (
	"encoding/binary"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Sampled tells whether the operation seq of a communicator is in the sample of 1 in every. All ranks, and all readers
// of their tapes, get the same answer.
func Sampled(comm lifecycle.CommID, seq, every uint64) bool {
	return sampled(sampleSeed(comm), seq, every)
}

func sampleSeed(comm lifecycle.CommID) uint64 {
	return binary.LittleEndian.Uint64(comm[:8]) ^ binary.LittleEndian.Uint64(comm[8:])
}

// sampled mixes with the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a cryptographic hash would
// cost more than everything else about an operation that isn't sampled.
func sampled(seed, seq, every uint64) bool {
	x := seed + seq*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	if every&(every-1) == 0 { // saves a division
		return x&(every-1) == 0
	}
	return x%every == 0
}

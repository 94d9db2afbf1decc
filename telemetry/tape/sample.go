package tape

import (
	"encoding/binary"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Sampled tells whether 1 in every operations of a communicator, among them the one with that number, is kept. All
// ranks answer alike, and so do all readers of their tapes.
func Sampled(comm lifecycle.CommID, seq, every uint64) bool {
	return sampled(sampleSeed(comm), seq, every)
}

func sampleSeed(comm lifecycle.CommID) uint64 {
	return binary.LittleEndian.Uint64(comm[:8]) ^ binary.LittleEndian.Uint64(comm[8:])
}

// sampled mixes with the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a cryptographic hash would
// cost more than all else that is done with an operation that isn't kept.
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

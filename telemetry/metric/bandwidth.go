package metric

import (
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// BusBandwidth is the rate in bytes per second at which an operation moved data across a rank's link, as nccl-tests
// defines it (doc/PERFORMANCE.md there): the size of the whole buffer over time, corrected for how often each byte must
// cross. 0 where it means nothing: a barrier, one rank alone, no time.
func BusBandwidth(sig *tape.Signature, rank, size int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(sig.Bytes) * sig.BusFactor(rank, size) / d.Seconds()
}

// sizeBuckets are the upper bounds of the size label, in bytes. They part what is bound by latency from what is bound
// by bandwidth; a finer label would multiply every histogram. All are powers of 4, so that a class of sizes of the
// tape's tallies falls into one.
var sizeBuckets = [...]struct {
	limit uint64
	label string
}{
	{1 << 10, "le_1KiB"},
	{64 << 10, "le_64KiB"},
	{1 << 20, "le_1MiB"},
	{16 << 20, "le_16MiB"},
	{256 << 20, "le_256MiB"},
}

// sizeAbove is the size label beyond the last bucket.
const sizeAbove = "gt_256MiB"

func sizeLabel(bytes uint64) string {
	for i := range sizeBuckets {
		if bytes <= sizeBuckets[i].limit {
			return sizeBuckets[i].label
		}
	}
	return sizeAbove
}

// classLabel is the size label of a class of sizes of the tape's tallies.
func classLabel(class uint8) string {
	if class >= tape.SizeClasses-1 {
		return sizeAbove
	}
	return sizeLabel(1 << (2 * class))
}

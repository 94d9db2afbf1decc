package metric

import (
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// BusBandwidth is the rate in bytes per second at which an operation moved data across a rank's link, as nccl-tests
// defines it (doc/PERFORMANCE.md there): the size of the whole buffer over time, corrected for how often each byte must
// cross. 0 where it means nothing: a barrier, one rank alone, no time.
func BusBandwidth(sig *tape.Signature, rank, size int, d time.Duration) float64 {
	if d <= 0 || size < 2 {
		return 0
	}
	return float64(sig.Bytes) * busFactor(sig, rank, float64(size)) / d.Seconds()
}

func busFactor(sig *tape.Signature, rank int, n float64) float64 {
	switch sig.Call {
	case lifecycle.CallAllReduce:
		return 2 * (n - 1) / n
	case lifecycle.CallAllGather, lifecycle.CallReduceScatter, lifecycle.CallAllToAll:
		return (n - 1) / n
	case lifecycle.CallGather, lifecycle.CallScatter:
		if int(sig.Peer) == rank { // the root holds the whole buffer, its own part of which doesn't travel
			return (n - 1) / n
		}
		return 1
	case lifecycle.CallBroadcast, lifecycle.CallReduce, lifecycle.CallSend, lifecycle.CallRecv, lifecycle.CallSendRecv:
		return 1
	default:
		return 0
	}
}

// sizeBuckets are the upper bounds of the size label, in bytes. They part what is bound by latency from what is bound
// by bandwidth; a finer label would multiply every histogram.
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

package tape

import "github.com/carillon-rt/carillon/lifecycle"

// BusFactor is the factor from an operation's bytes to the bytes that cross a rank's link, as nccl-tests defines it
// (doc/PERFORMANCE.md there): the size of the whole buffer, corrected for how often each byte must cross. rank and size
// are the caller's in the communicator. The factor is 0 where it has no meaning: for a barrier, or one rank alone.
func (s *Signature) BusFactor(rank, size int) float64 {
	n := float64(size)
	switch {
	case size < 2:
		return 0
	case s.Call == lifecycle.CallAllReduce:
		return 2 * (n - 1) / n
	case s.Call == lifecycle.CallAllGather, s.Call == lifecycle.CallReduceScatter, s.Call == lifecycle.CallAllToAll:
		return (n - 1) / n
	case s.Call == lifecycle.CallGather, s.Call == lifecycle.CallScatter:
		if int(s.Peer) == rank { // the root holds the whole buffer, and its own part isn't sent
			return (n - 1) / n
		}
		return 1
	case s.Call == lifecycle.CallBroadcast, s.Call == lifecycle.CallReduce,
		s.Call == lifecycle.CallSend, s.Call == lifecycle.CallRecv, s.Call == lifecycle.CallSendRecv:
		return 1
	default:
		return 0
	}
}

package bench

// Collective is one that is measured on GPUs, by the name that it has everywhere.
type Collective string

// The collectives. The size of each is as nccl-tests define it.
const (
	AllReduce     Collective = "all_reduce"     // bytes of a rank's buffer
	AllGather     Collective = "all_gather"     // bytes that a rank receives, with its own
	ReduceScatter Collective = "reduce_scatter" // bytes that a rank sends, with those to itself
)

// Collectives are the names of all.
func Collectives() []string {
	return []string{string(AllReduce), string(AllGather), string(ReduceScatter)}
}

// elements are those that a rank sends and receives if the size is about so many bytes: float32, and one at least.
func (c Collective) elements(bytes, ranks int) (send, recv int) {
	part := max(1, bytes/4/ranks)
	switch c {
	case AllGather:
		return part, part * ranks
	case ReduceScatter:
		return part * ranks, part
	default:
		return bytes / 4, bytes / 4
	}
}

// busBandwidth is in bytes a second, as nccl-tests define it: what the links do, comparable over numbers of ranks and
// with the hardware's figure.
func (c Collective) busBandwidth(r GPUResult) float64 {
	times := 1.0
	if c == AllReduce {
		times = 2
	}
	seconds := r.Graph.P50.Seconds()
	if seconds <= 0 {
		return 0
	}
	return times * float64(r.Ranks-1) / float64(r.Ranks) * float64(r.Bytes) / seconds
}

package bench

import "time"

// Collective is a collective that is measured on GPUs, by its name in spans and metrics.
type Collective string

// The collectives. Sizes are as defined by nccl-tests.
const (
	AllReduce     Collective = "all_reduce"     // bytes of a rank's buffer
	AllGather     Collective = "all_gather"     // bytes that a rank receives, including its own
	ReduceScatter Collective = "reduce_scatter" // bytes that a rank sends, including those to itself
)

// Collectives returns the names of all collectives.
func Collectives() []string {
	return []string{string(AllReduce), string(AllGather), string(ReduceScatter)}
}

// elements is the number of float32 that a rank sends and receives for a size of about so many bytes: at least one.
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

// busBandwidth is in bytes a second, as defined by nccl-tests: the load of the links, comparable across numbers of
// ranks and with the hardware's figure.
func (c Collective) busBandwidth(ranks, bytes int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	times := 1.0
	if c == AllReduce {
		times = 2
	}
	return times * float64(ranks-1) / float64(ranks) * float64(bytes) / took.Seconds()
}

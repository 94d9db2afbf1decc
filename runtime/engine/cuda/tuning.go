package cuda

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// TuningVariable names the environment variable that holds the path of the tuning file, used when Options.Tuning isn't
// set.
const TuningVariable = "CARILLON_GPU_TUNING"

// Limits are the largest calls, in bytes, for each kernel whose data comes with its flags. A call uses the first kernel
// whose limit it doesn't exceed. Larger calls run directly between buffers, or through FIFOs.
type Limits struct {
	// OneShot applies to all-reduce and reduce, by the bytes of the buffer, and to reduce-scatter, by the bytes of a
	// rank's part. In LL128, reduce-scatter has a limit of its own.
	OneShot            int `json:"one_shot"`
	OneShotLL128       int `json:"one_shot_ll128"`
	ReduceScatterLL128 int `json:"reduce_scatter_ll128"`

	// TwoShot applies to larger all-reduces.
	TwoShot      int `json:"two_shot"`
	TwoShotLL128 int `json:"two_shot_ll128"`

	// Copy applies to the other collectives, by the bytes from one rank to another.
	Copy      int `json:"copy"`
	CopyLL128 int `json:"copy_ll128"`

	// Push is the size from which an all-reduce pushes (see kernels/cuda.Reach); 0 if none does. For smaller sizes,
	// waiting at FIFOs costs more than writing instead of reading saves. Ranks that are all on one GPU never push.
	// ReduceScatterPush is the same for reduce-scatter, by the bytes of a rank's part.
	Push              int `json:"push"`
	ReduceScatterPush int `json:"reduce_scatter_push"`
}

// inLL returns the limits to use where LL128 isn't safe.
func (l Limits) inLL() Limits {
	l.OneShotLL128, l.ReduceScatterLL128, l.TwoShotLL128, l.CopyLL128 = 0, 0, 0, 0
	return l
}

// numLimits is the number of limits.
const numLimits = 9

func (l Limits) list() [numLimits]int {
	return [numLimits]int{
		l.OneShot, l.OneShotLL128, l.ReduceScatterLL128, l.TwoShot, l.TwoShotLL128, l.Copy, l.CopyLL128, l.Push,
		l.ReduceScatterPush,
	}
}

// Tuning says which kernels are fastest, by the number of ranks. A number that it lacks uses the limits of the next
// larger number, or of the largest.
type Tuning map[int]Limits

// Measured by carillon tune: 2 ranks on two H100s, 4 on four, and 8 on two; the push limits of reduce-scatter, on
// H200s. For 8 ranks, reduce-scatter in LL128 was not measured and has all-reduce's limit; pushing was not measured
// either, as 8 ranks don't push.
//
//go:embed tuning.json
var builtIn []byte

// ReadTuning reads a file that carillon tune has written. Without a path, it returns what was measured on H100s.
func ReadTuning(path string) (t Tuning, err error) {
	text := builtIn
	if path != "" {
		if text, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for ranks, l := range t {
		limits := l.list()
		if ranks < 1 || slices.Min(limits[:]) < 0 {
			return nil, fmt.Errorf("%s: for %d ranks the limits are %+v", path, ranks, l)
		}
	}
	return t, nil
}

// For returns the limits for a number of ranks.
func (t Tuning) For(ranks int) Limits {
	counts := slices.Sorted(maps.Keys(t))
	if len(counts) == 0 {
		return Limits{}
	}
	i, _ := slices.BinarySearch(counts, ranks)
	return t[counts[min(i, len(counts)-1)]]
}

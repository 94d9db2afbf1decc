package cuda

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// TuningVariable names the environment variable with the file that Options.Tuning is read from where it isn't given.
const TuningVariable = "CARILLON_GPU_TUNING"

// Limits are the largest calls, in bytes, that are made by each kernel whose data comes with its flags: by the first
// one whose limit a call keeps. Larger calls are made directly between buffers, or through FIFOs.
type Limits struct {
	// OneShot are all-reduce and reduce, by the bytes of the buffer; and reduce-scatter, by those of a rank's part,
	// which has a limit of its own in LL128.
	OneShot            int `json:"one_shot"`
	OneShotLL128       int `json:"one_shot_ll128"`
	ReduceScatterLL128 int `json:"reduce_scatter_ll128"`

	// TwoShot is all-reduce beyond that.
	TwoShot      int `json:"two_shot"`
	TwoShotLL128 int `json:"two_shot_ll128"`

	// Copy are the others, by the bytes from one rank to another.
	Copy      int `json:"copy"`
	CopyLL128 int `json:"copy_ll128"`

	// Push is the size from which on an all-reduce pushes (see kernels/cuda.Reach); 0 if none does. Below it, waiting
	// at FIFOs costs more than writing instead of reading saves. Ranks that are all on one GPU never push. The other
	// one is reduce-scatter's, by the bytes of a rank's part.
	Push              int `json:"push"`
	ReduceScatterPush int `json:"reduce_scatter_push"`
}

// inLL are the limits where LL128 isn't safe.
func (l Limits) inLL() Limits {
	l.OneShotLL128, l.ReduceScatterLL128, l.TwoShotLL128, l.CopyLL128 = 0, 0, 0, 0
	return l
}

// numLimits is how many limits there are.
const numLimits = 9

func (l Limits) list() [numLimits]int {
	return [numLimits]int{
		l.OneShot, l.OneShotLL128, l.ReduceScatterLL128, l.TwoShot, l.TwoShotLL128, l.Copy, l.CopyLL128, l.Push,
		l.ReduceScatterPush,
	}
}

// Tuning says which kernels are the fastest, by the number of ranks. Numbers that it lacks have the limits of the next
// larger one, or of the largest.
type Tuning map[int]Limits

// By carillon tune: 2 ranks on two H100s, 4 on four, and 8 on two; where reduce-scatter pushes, on H200s. Of 8, neither
// reduce-scatter in LL128 was measured, which has all-reduce's limit, nor pushing, which they don't do.
//
//go:embed tuning.json
var builtIn []byte

// ReadTuning reads what carillon tune has written. Without a path it is what was measured on H100s.
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

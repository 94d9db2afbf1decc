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

// Limits are the largest calls, in bytes, that are made in packets. Larger ones are made directly between buffers, or
// through FIFOs.
type Limits struct {
	OneShot int `json:"one_shot"` // all-reduce, reduce: the buffer; reduce-scatter: the part of a rank
	TwoShot int `json:"two_shot"` // all-reduce beyond that
	Copy    int `json:"copy"`     // others: what goes from one rank to another
}

// Tuning says which kernels are the fastest, by the number of ranks. Numbers that it lacks have the limits of the next
// larger one, or of the largest.
type Tuning map[int]Limits

//go:embed tuning.json
var builtIn []byte // by carillon tune: 2 ranks on two H100s, 4 and 8 on an H200 that they shared

// ReadTuning reads what carillon tune has written. Without a path it is what was measured on H100s and an H200.
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
		if ranks < 1 || min(l.OneShot, l.TwoShot, l.Copy) < 0 {
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

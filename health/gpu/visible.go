package gpu

import (
	"strconv"
	"strings"
)

// visibility says which GPUs are the process's own.
type visibility struct {
	all     bool
	devices []string // indices, UUIDs, or beginnings of UUIDs
}

// parseVisible reads CUDA_VISIBLE_DEVICES as CUDA does: the first entry that is invalid or a repetition ends the list.
func parseVisible(value string, set bool) visibility {
	if !set {
		return visibility{all: true}
	}
	var v visibility
	seen := map[string]bool{}
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		index, err := strconv.Atoi(entry)
		isUUID := strings.HasPrefix(entry, "GPU-") || strings.HasPrefix(entry, "MIG-")
		if (err != nil || index < 0) && !isUUID || seen[entry] {
			break
		}
		seen[entry] = true
		v.devices = append(v.devices, entry)
	}
	return v
}

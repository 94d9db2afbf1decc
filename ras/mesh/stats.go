package mesh

import "sync/atomic"

// Stats is what a mesh has counted since it started.
type Stats struct {
	// Strangers counts packets and streams that were not of this job: garbage, another key, truncated. Replays counts
	// packets that were replayed, and Crowded streams that were closed because there were too many strangers.
	Strangers, Replays, Crowded atomic.Uint64
	// Malformed counts messages of this job that could not be read.
	Malformed atomic.Uint64
	// Limited counts the questions that were dropped because of the limits of one asker or of all.
	Limited atomic.Uint64
}

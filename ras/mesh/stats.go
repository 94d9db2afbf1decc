package mesh

import (
	"errors"
	"sync/atomic"
)

// Stats is what a mesh has counted since it started.
type Stats struct {
	// Strangers counts packets and streams that were not of this job: garbage, another key, truncated. Replays counts
	// replayed ones. Oversized and Crowded count streams that were refused for a record's size, or because there were
	// too many streams.
	Strangers, Replays, Oversized, Crowded atomic.Uint64
	// Malformed counts messages of this job that could not be read.
	Malformed atomic.Uint64
	// Limited counts the questions that were dropped because of the limits of one asker or of all.
	Limited atomic.Uint64
}

func (c *Stats) refuse(err error) {
	switch {
	case errors.Is(err, errReplay):
		c.Replays.Add(1)
	case errors.Is(err, errTooLarge):
		c.Oversized.Add(1)
	default:
		c.Strangers.Add(1)
	}
}

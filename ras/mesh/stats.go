package mesh

import (
	"errors"
	"sync/atomic"
)

// Stats is what a mesh has counted since it started.
type Stats struct {
	// Strangers counts packets and streams that were not of this job: garbage, another key, cut short. Replays counts
	// those of this job that came again. Oversized and Crowded count streams that were turned away, for their size and
	// for the number of others.
	Strangers, Replays, Oversized, Crowded uint64
	// Malformed counts messages of this job that could not be read.
	Malformed uint64
	// Limited counts the questions that were dropped because their asker or all together asked too often.
	Limited uint64
}

type counters struct {
	strangers, replays, oversized, crowded, malformed, limited atomic.Uint64
}

func (c *counters) refuse(err error) {
	switch {
	case errors.Is(err, errReplay):
		c.replays.Add(1)
	case errors.Is(err, errTooLarge):
		c.oversized.Add(1)
	default:
		c.strangers.Add(1)
	}
}

func (c *counters) stats() Stats {
	return Stats{
		Strangers: c.strangers.Load(), Replays: c.replays.Load(), Oversized: c.oversized.Load(), Crowded: c.crowded.Load(),
		Malformed: c.malformed.Load(), Limited: c.limited.Load(),
	}
}

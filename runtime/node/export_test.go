package node

import "context"

// Sync waits until all that is on the tape now has been read.
func (t *Telemetry) Sync(ctx context.Context) error { return t.follower.Sync(ctx) }

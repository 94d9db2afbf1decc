// Package left tests ranks that end in every way that keeps them from sending their last spans, and jobs that are
// started twice in one environment: which spans arrive, and what is left on the tapes.
package left

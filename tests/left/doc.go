// Package left has ranks end in every way that keeps them from sending their last spans, and starts jobs twice in one
// environment; and it looks at what arrives, and what is left on the tapes.
package left

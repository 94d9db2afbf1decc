package transport

// prefetch makes the processor fetch a cache line.
//
//go:noescape
func prefetch(p *byte)

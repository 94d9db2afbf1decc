package transport

// prefetch has the processor fetch a cache line.
//
//go:noescape
func prefetch(p *byte)

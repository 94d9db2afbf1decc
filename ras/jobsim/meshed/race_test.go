//go:build race

package meshed_test

// shuffled tells that the runtime puts goroutines into an order of its own: it does so for the race detector.
const shuffled = true

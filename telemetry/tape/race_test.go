//go:build race

package tape

// raceFactor is how much slower the race detector may make things.
const raceFactor = 20

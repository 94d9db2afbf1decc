// Package wire listens in on jobs: it tests what an observer on the network sees of them.
package wire

// Package wire listens in on jobs: what somebody on the network sees of them.
package wire

// Package tapetest makes tapes for tests of tape readers: a Forge writes files by the format's description, without
// package tape's writer. The package's own tests compare both writers, in Go and in C, with the format and with each
// other.
package tapetest

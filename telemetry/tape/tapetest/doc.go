// Package tapetest makes tapes for tests of their readers: a Forge writes files by the format's description, without
// the writer of package tape. The package's own tests compare both writers, in Go and in C, with the format and with
// each other.
package tapetest

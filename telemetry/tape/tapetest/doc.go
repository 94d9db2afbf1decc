// Package tapetest forges tapes for tests of readers: it writes files by the format's description, without the writer
// of package tape. Its own tests hold any writer of tapes, in any language, against the format; see suite_test.go.
package tapetest

// Package tapetest tests writers and readers of tapes. Run compares a writer, in any language, with the format and with
// Go's writer. A Forge makes tapes for tests of readers: it writes files by the format's description, without the
// writer of package tape.
package tapetest

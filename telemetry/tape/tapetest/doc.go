// Package tapetest is for tests of writers and readers of tapes. Run holds any writer, in any language, against the
// format and against Go's writer. A Forge forges tapes for readers: it writes files by the format's description alone,
// without the writer of package tape.
package tapetest

package mesh

import (
	"context"
	"io"
	"log"
	"log/slog"
	"strings"
)

// logTo is a logger of the old kind that writes to l at debug: memberlist calls many things errors that are none here.
func logTo(l *slog.Logger) *log.Logger {
	if l == nil || !l.Enabled(context.Background(), slog.LevelDebug) {
		return log.New(io.Discard, "", 0)
	}
	return log.New(logWriter{l}, "", 0)
}

type logWriter struct{ l *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.l.Debug(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

package logsink

import (
	"errors"
	"log/slog"
	"math"
	"strings"
)

// LevelVersion is the level of the one line that says which version runs. It is a sort of INFO that NCCL_DEBUG=VERSION
// and WARN let through.
const LevelVersion = slog.LevelInfo + 1

// LevelOff is above every level that anything logs with.
const LevelOff = slog.Level(math.MaxInt)

// ParseLevel reads the value of CARILLON_LOG: debug, info, warn, error or off, in any case.
func ParseLevel(s string) (slog.Level, error) {
	return oneOf(strings.ToLower(s), "want debug, info, warn, error or off", map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
		"off": LevelOff,
	})
}

// ParseNCCLDebug reads the value of NCCL_DEBUG: VERSION, WARN, INFO, ABORT or TRACE, in any case. Each includes those
// before it. All of them show the version, and VERSION nothing else.
func ParseNCCLDebug(s string) (slog.Level, error) {
	return oneOf(strings.ToUpper(s), "want VERSION, WARN, INFO or TRACE", map[string]slog.Level{
		"VERSION": LevelOff, "WARN": slog.LevelWarn, "INFO": slog.LevelInfo, "ABORT": slog.LevelInfo,
		"TRACE": slog.LevelDebug,
	})
}

// Format is how lines look. The zero value is Text.
type Format string

// The formats.
const (
	Text Format = "text" // key=value, for people
	JSON Format = "json" // an object a line, for machines
)

// ParseFormat reads the value of CARILLON_LOG_FORMAT: text or json, in any case.
func ParseFormat(s string) (Format, error) {
	return oneOf(strings.ToLower(s), "want text or json", map[string]Format{"text": Text, "json": JSON})
}

func oneOf[T any](word, want string, values map[string]T) (T, error) {
	value, ok := values[word]
	if !ok {
		return value, errors.New(want)
	}
	return value, nil
}

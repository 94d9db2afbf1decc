package logsink

import (
	"errors"
	"log/slog"
	"math"
	"strings"
)

// LevelVersion is the level of the line with the version. It is INFO, but NCCL_DEBUG=VERSION and WARN show it, too.
const LevelVersion = slog.LevelInfo + 1

// LevelOff is above the levels of all lines.
const LevelOff = slog.Level(math.MaxInt)

// ParseLevel reads the value of CARILLON_LOG: debug, info, warn, error or off, in any case.
func ParseLevel(s string) (slog.Level, error) {
	return oneOf(strings.ToLower(s), "want debug, info, warn, error or off", map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
		"off": LevelOff,
	})
}

// ParseNCCLDebug reads the value of NCCL_DEBUG: VERSION, WARN, INFO, ABORT or TRACE, in any case. Each includes those
// before it; VERSION alone shows only the version.
func ParseNCCLDebug(s string) (slog.Level, error) {
	return oneOf(strings.ToUpper(s), "want VERSION, WARN, INFO or TRACE", map[string]slog.Level{
		"VERSION": LevelOff, "WARN": slog.LevelWarn, "INFO": slog.LevelInfo, "ABORT": slog.LevelInfo,
		"TRACE": slog.LevelDebug,
	})
}

// Format is the format of lines. The zero value is Text.
type Format string

// The formats.
const (
	Text Format = "text" // key=value
	JSON Format = "json" // an object on each line
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

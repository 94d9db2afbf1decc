package logsink

import (
	"fmt"
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
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	case "off":
		return LevelOff, nil
	default:
		return 0, fmt.Errorf("want debug, info, warn, error or off")
	}
}

// ParseNCCLDebug reads the value of NCCL_DEBUG: VERSION, WARN, INFO, ABORT or TRACE, in any case. Each includes those
// before it. All of them show the version, and VERSION nothing else.
func ParseNCCLDebug(s string) (slog.Level, error) {
	switch strings.ToUpper(s) {
	case "VERSION":
		return LevelOff, nil
	case "WARN":
		return slog.LevelWarn, nil
	case "INFO", "ABORT":
		return slog.LevelInfo, nil
	case "TRACE":
		return slog.LevelDebug, nil
	default:
		return 0, fmt.Errorf("want VERSION, WARN, INFO or TRACE")
	}
}

// Format is how lines look.
type Format uint8

// The formats.
const (
	Text Format = iota // key=value, for people
	JSON               // an object a line, for machines
)

// ParseFormat reads the value of CARILLON_LOG_FORMAT: text or json, in any case.
func ParseFormat(s string) (Format, error) {
	switch strings.ToLower(s) {
	case "text":
		return Text, nil
	case "json":
		return JSON, nil
	default:
		return Text, fmt.Errorf("want text or json")
	}
}

// String is "text" or "json".
func (f Format) String() string {
	if f == JSON {
		return "json"
	}
	return "text"
}

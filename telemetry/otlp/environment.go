package otlp

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout bounds one export, unless OTEL_EXPORTER_OTLP_TIMEOUT is set.
const DefaultTimeout = 10 * time.Second

// The protocols.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// signal is TRACES, METRICS or LOGS: the part of a variable's name.
type signal string

// variable is the name and the value of the signal's own variable or, if that is empty, of the one for all signals.
func (s signal) variable(what string) (name, value string) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	name = prefix + string(s) + "_" + what
	if value = os.Getenv(name); value == "" {
		name = prefix + what
		value = os.Getenv(name)
	}
	return name, strings.TrimSpace(value)
}

func (s signal) protocol() (string, error) {
	switch name, value := s.variable("PROTOCOL"); value {
	case "", protocolHTTP, protocolGRPC:
		return cmp.Or(value, protocolHTTP), nil
	default:
		return "", fmt.Errorf("%s is %q, allowed is %s or %s", name, value, protocolHTTP, protocolGRPC)
	}
}

// plain tells whether to switch TLS off: the endpoint is the default, this host's, and no variable asks for TLS.
func (s signal) plain() bool {
	_, endpoint := s.variable("ENDPOINT")
	_, insecure := s.variable("INSECURE")
	_, err := strconv.ParseBool(insecure)
	return endpoint == "" && err != nil && !s.certified()
}

// certified tells whether there are certificates, with which the SDK makes its own HTTP client.
func (s signal) certified() bool {
	for _, what := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		if _, file := s.variable(what); file != "" {
			return true
		}
	}
	return false
}

// timeout bounds an export. An invalid value counts as none.
func (s signal) timeout() time.Duration {
	_, text := s.variable("TIMEOUT")
	if ms, err := strconv.Atoi(text); err == nil && ms >= 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return DefaultTimeout
}

// Disabled tells whether OTEL_SDK_DISABLED asks for no telemetry at all.
func Disabled() bool {
	return strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true")
}

// Asked tells whether the environment asks for the export of a signal (TRACES, METRICS or LOGS): by a variable of its
// own, or by one for all signals. Both are false if Disabled.
func Asked(signal string) (own, all bool) {
	if Disabled() {
		return false, false
	}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		rest, otlp := strings.CutPrefix(name, "OTEL_EXPORTER_OTLP_")
		of, _, _ := strings.Cut(rest, "_")
		switch {
		case value == "":
		case name == "OTEL_"+signal+"_EXPORTER", otlp && of == signal:
			own = true
		case otlp && of != "TRACES" && of != "METRICS" && of != "LOGS":
			all = true
		}
	}
	return own, all
}

// Fingerprint is a hash of all OTEL_* variables of this process, never 0: processes with the same one export to the
// same receivers, as the same service.
func Fingerprint() uint64 {
	var set []string
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") && value != "" {
			set = append(set, kv)
		}
	}
	slices.Sort(set)
	sum := sha256.Sum256([]byte(strings.Join(set, "\x00"))) // reveals no passwords
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}

// Batching are the settings of a batch processor.
type Batching struct {
	Queue, Batch   int           // the most items in the queue, and in one export
	Delay, Timeout time.Duration // between exports, and of one export
}

// BatchingFromEnv reads the variables with a prefix (OTEL_BSP or OTEL_BLRP). OpenTelemetry would read them itself, but
// without a warning about invalid values. unit is "spans" or "records". The defaults are OpenTelemetry's, but Delay is
// a second, so that a hang is seen soon.
func BatchingFromEnv(log *slog.Logger, prefix, unit string) Batching {
	const maxQueue = 1 << 20 // memory is reserved for all of it
	queue := number(log, prefix+"_MAX_QUEUE_SIZE", unit, 2048, maxQueue)
	return Batching{
		Queue:   queue,
		Batch:   min(number(log, prefix+"_MAX_EXPORT_BATCH_SIZE", unit, 512, maxQueue), queue),
		Delay:   Milliseconds(log, prefix+"_SCHEDULE_DELAY", time.Second),
		Timeout: Milliseconds(log, prefix+"_EXPORT_TIMEOUT", 30*time.Second),
	}
}

// Milliseconds reads a variable of up to 24 days. An invalid value is logged, and the default is used instead.
func Milliseconds(log *slog.Logger, name string, usual time.Duration) time.Duration {
	return time.Duration(number(log, name, "milliseconds", int(usual.Milliseconds()), 1<<31)) * time.Millisecond
}

// number is Milliseconds for a whole number from 1 to most.
func number(log *slog.Logger, name, unit string, usual, most int) int {
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > most {
		Unusable(log, name, text, fmt.Sprintf("%s, a whole number from 1 to %d", unit, most), usual)
		return usual
	}
	return n
}

// Unusable logs that a variable's value is not allowed, and what is used instead.
func Unusable(log *slog.Logger, name, value, allowed string, instead any) {
	log.Warn("a variable of the environment can't be used", "variable", name, "value", value, "allowed", allowed,
		"instead", instead)
}

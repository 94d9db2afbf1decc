package trace

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// A wrong OTEL_* variable never fails the job that it is set for: it is named in a warning with its value, with what is
// allowed and with what is done instead. A destination that can't be meant is no destination, so that spans don't go to
// OpenTelemetry's default one.

// maxQueue bounds OTEL_BSP_MAX_QUEUE_SIZE and OTEL_BSP_MAX_EXPORT_BATCH_SIZE: room is reserved for all of them.
const maxQueue = 1 << 20

// envProblem is a variable that can't be used.
type envProblem struct {
	name, value, allowed, instead string
	fatal                         bool // nothing can be exported with it
}

const notExported = "spans are not exported"

// checkEnv lists the variables of exporting that can't be used.
func checkEnv(getenv func(string) string) []envProblem {
	var list []envProblem
	bad := func(name, allowed, instead string) {
		list = append(list, envProblem{name, getenv(name), allowed, instead, instead == notExported})
	}
	oneOf := func(name, instead string, allowed ...string) {
		v := strings.TrimSpace(getenv(name))
		for _, a := range append(allowed, "") {
			if strings.EqualFold(v, a) {
				return
			}
		}
		bad(name, strings.Join(allowed, ", "), instead)
	}
	oneOf("OTEL_SDK_DISABLED", "false", "true", "false")
	oneOf("OTEL_TRACES_EXPORTER", notExported, "otlp", "console", "none")
	for name, v := range bspVariables(getenv) {
		if v.set && !v.ok {
			bad(name, v.allowed, strconv.Itoa(v.value))
		}
	}
	if getenv("OTEL_TRACES_SAMPLER") != "" {
		bad("OTEL_TRACES_SAMPLER", "nothing: all ranks must choose the same operations",
			"sampled is by what an operation is, 1 in so many")
	}
	for _, part := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		oneOf(part+"PROTOCOL", notExported, "http/protobuf", "grpc")
		oneOf(part+"COMPRESSION", "none", "gzip", "none")
		oneOf(part+"INSECURE", "what the endpoint says", "true", "false")
		if v := getenv(part + "ENDPOINT"); v != "" && !validEndpoint(v) {
			bad(part+"ENDPOINT", "a URL with http or https and a host, such as http://localhost:4318", notExported)
		}
		if v := getenv(part + "TIMEOUT"); v != "" {
			if n, err := strconv.Atoi(strings.TrimSpace(v)); err != nil || n < 0 {
				bad(part+"TIMEOUT", "milliseconds, a whole number", "10000")
			}
		}
		for _, file := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
			if v := getenv(part + file); v != "" {
				if _, err := os.ReadFile(v); err != nil {
					bad(part+file, "a file that can be read", "it is left out ("+err.Error()+")")
				}
			}
		}
		if v := getenv(part + "HEADERS"); v != "" && !validHeaders(v) {
			bad(part+"HEADERS", "key=value pairs with a comma between them", "the pairs that are ones")
			list[len(list)-1].value = "(hidden)" // they are what the receiver knows us by
		}
	}
	return list
}

// reportEnv warns of the problems that can be done with, and returns the others.
func reportEnv(log *slog.Logger, problems []envProblem) error {
	var errs []error
	for _, p := range problems {
		if p.fatal {
			errs = append(errs, fmt.Errorf("%s=%q can't be used; it takes %s", p.name, p.value, p.allowed))
			continue
		}
		log.Warn("a variable of the environment can't be used", "variable", p.name, "value", p.value, "allowed",
			p.allowed, "instead", p.instead)
	}
	return errors.Join(errs...)
}

func validEndpoint(v string) bool {
	u, err := url.Parse(strings.TrimSpace(v))
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

func validHeaders(v string) bool {
	for pair := range strings.SplitSeq(v, ",") {
		key, value, found := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !found || strings.TrimSpace(key) == "" || err != nil {
			return false
		}
	}
	return true
}

// bspVariable is one number that the batch processor is set up by.
type bspVariable struct {
	value   int // what is used
	set, ok bool
	allowed string
}

func bspVariables(getenv func(string) string) map[string]bspVariable {
	all := make(map[string]bspVariable)
	for name, def := range map[string]struct {
		value, most int
		unit        string
	}{
		"OTEL_BSP_SCHEDULE_DELAY":        {int(exportDelay.Milliseconds()), 1 << 31, "milliseconds"},
		"OTEL_BSP_EXPORT_TIMEOUT":        {sdktrace.DefaultExportTimeout, 1 << 31, "milliseconds"},
		"OTEL_BSP_MAX_QUEUE_SIZE":        {sdktrace.DefaultMaxQueueSize, maxQueue, "spans"},
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": {sdktrace.DefaultMaxExportBatchSize, maxQueue, "spans"},
	} {
		v := bspVariable{value: def.value, allowed: def.unit + ", a whole number from 1 to " + strconv.Itoa(def.most)}
		if text := getenv(name); text != "" {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			v.set, v.ok = true, err == nil && n >= 1 && n <= def.most
			if v.ok {
				v.value = n
			}
		}
		all[name] = v
	}
	return all
}

// batchOptions set all that OpenTelemetry reads from the environment itself, where it takes any number.
func batchOptions(getenv func(string) string) []sdktrace.BatchSpanProcessorOption {
	v := bspVariables(getenv)
	queue := v["OTEL_BSP_MAX_QUEUE_SIZE"].value
	return []sdktrace.BatchSpanProcessorOption{
		sdktrace.WithBatchTimeout(time.Duration(v["OTEL_BSP_SCHEDULE_DELAY"].value) * time.Millisecond),
		sdktrace.WithExportTimeout(time.Duration(v["OTEL_BSP_EXPORT_TIMEOUT"].value) * time.Millisecond),
		sdktrace.WithMaxQueueSize(queue),
		sdktrace.WithMaxExportBatchSize(min(v["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"].value, queue)),
	}
}

// destination is where spans go and which variable says so, for messages.
func destination(getenv func(string) string) string {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if v := getenv(name); v != "" {
			if u, err := url.Parse(v); err == nil {
				return name + "=" + u.Redacted()
			}
		}
	}
	return "OTEL_TRACES_EXPORTER=" + getenv("OTEL_TRACES_EXPORTER")
}

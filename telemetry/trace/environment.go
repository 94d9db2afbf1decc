package trace

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/telemetry/otlp"
)

// An invalid OTEL_* variable never fails the job: a warning has its name, its value, the allowed values and what is
// used instead. With an invalid destination nothing is exported, not even to OpenTelemetry's default destination.

const notExported = "spans are not exported"

// checkEnv warns of invalid variables. The error names the invalid ones without which nothing can be exported.
func checkEnv(log *slog.Logger) error {
	var errs []error
	check := func(name, allowed, instead string, valid func(string) bool) {
		value := os.Getenv(name)
		switch {
		case strings.TrimSpace(value) == "" || valid(strings.TrimSpace(value)):
			return
		case instead == notExported:
			errs = append(errs, fmt.Errorf("%s=%q can't be used; it takes %s", name, value, allowed))
			return
		case strings.HasSuffix(name, "HEADERS"):
			value = "(hidden)" // headers hold credentials
		}
		otlp.Unusable(log, name, value, allowed, instead)
	}
	oneOf := func(name, instead string, allowed ...string) {
		check(name, strings.Join(allowed, ", "), instead, func(v string) bool {
			return slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(v, a) })
		})
	}
	oneOf("OTEL_SDK_DISABLED", "false", "true", "false")
	check("OTEL_TRACES_SAMPLER", "nothing: all ranks must choose the same operations",
		"1 in so many operations is sampled, by communicator and number", func(string) bool { return false })
	for _, part := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		oneOf(part+"PROTOCOL", notExported, "http/protobuf", "grpc")
		oneOf(part+"COMPRESSION", "none", "gzip", "none")
		oneOf(part+"INSECURE", "what the endpoint says", "true", "false")
		check(part+"ENDPOINT", "a URL with http or https and a host, such as http://localhost:4318", notExported,
			validEndpoint)
		check(part+"TIMEOUT", "milliseconds, a whole number", "10000", func(v string) bool {
			n, err := strconv.Atoi(v)
			return err == nil && n >= 0
		})
		for _, file := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
			_, err := os.ReadFile(os.Getenv(part + file))
			check(part+file, "a file that can be read", fmt.Sprintf("it is left out (%v)", err),
				func(string) bool { return err == nil })
		}
		check(part+"HEADERS", "key=value pairs with a comma between them", "the valid pairs", validHeaders)
	}
	return errors.Join(errs...)
}

func validEndpoint(v string) bool {
	u, err := url.Parse(v)
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

// destination says, for messages, where spans go and which variable names it.
func destination() string {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if v := os.Getenv(name); v != "" {
			if u, err := url.Parse(v); err == nil {
				return name + "=" + u.Redacted()
			}
		}
	}
	return "OTEL_TRACES_EXPORTER=" + os.Getenv("OTEL_TRACES_EXPORTER")
}

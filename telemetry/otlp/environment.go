package otlp

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout bounds one export, unless OTEL_EXPORTER_OTLP_TIMEOUT does.
const DefaultTimeout = 10 * time.Second

// The protocols.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// signal is one of those that OTLP sends, and what its exporter is made from.
type signal struct {
	name      string // as it stands in variables
	getenv    func(string) string
	transport http.RoundTripper
}

// variable is the name and the value of the signal's own variable, or of the one for all signals.
func (s signal) variable(what string) (name, value string) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	name = prefix + s.name + "_" + what
	if value = s.getenv(name); value == "" {
		name = prefix + what
		value = s.getenv(name)
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

// plain tells whether there is no TLS although the endpoint doesn't say so: it is this host's, and nothing speaks of TLS.
func (s signal) plain() bool {
	_, endpoint := s.variable("ENDPOINT")
	_, insecure := s.variable("INSECURE")
	_, err := strconv.ParseBool(insecure)
	return endpoint == "" && err != nil && !s.certified()
}

// certified tells whether there are certificates, by which the SDK makes its HTTP client.
func (s signal) certified() bool {
	for _, what := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		if _, file := s.variable(what); file != "" {
			return true
		}
	}
	return false
}

// timeout is how long an export may take; a value that can't be used counts as none.
func (s signal) timeout() time.Duration {
	_, text := s.variable("TIMEOUT")
	if ms, err := strconv.Atoi(text); err == nil && ms >= 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return DefaultTimeout
}

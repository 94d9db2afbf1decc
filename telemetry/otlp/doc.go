// Package otlp makes the exporters that send spans, metrics and log records to a collector, from OpenTelemetry's
// OTEL_EXPORTER_OTLP_* variables. It is the SDK's exporters with two things mended:
//
//   - Without an endpoint, spans go to the collector of this host, at http://localhost:4318 (gRPC:
//     http://localhost:4317), as the specification says: https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
//     The SDK's exporters take https.
//   - An answer that is a web page is an error. The SDK takes every answer of status 200 for a receipt, so that
//     everything is lost without a word where the endpoint is a user interface, a proxy or a portal. With certificates
//     of its own (…_CERTIFICATE, …_CLIENT_KEY) the SDK doesn't let its HTTP client be replaced; there, and with gRPC,
//     which has no such answers, nothing is looked at.
package otlp

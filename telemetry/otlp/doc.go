// Package otlp makes the exporters that send spans, metrics and log records to a collector, from OpenTelemetry's
// OTEL_EXPORTER_OTLP_* variables, and counts what they lose. They are the SDK's exporters with two corrections:
//
//   - Without an endpoint, the collector is this host's, at http://localhost:4318 (gRPC: http://localhost:4317), as the
//     specification says: https://opentelemetry.io/docs/specs/otel/protocol/exporter/. The SDK's exporters use https.
//   - An answer that is a web page is an error. The SDK takes every answer of status 200 for success, so that an
//     endpoint that is a user interface, a proxy or a portal loses everything without an error. Answers are not checked
//     with gRPC, which has no web pages, and with certificates (…_CERTIFICATE, …_CLIENT_KEY), with which the SDK's HTTP
//     client can't be replaced.
package otlp

// Package otlplog hands events to OpenTelemetry as log records, by the API alone: the SDK behind the log.Logger exports
// them, by OTLP or however it is set up (https://opentelemetry.io/docs/specs/otel/logs/data-model/).
//
// A record's EventName is the event's type, its Body the text. Attributes are semconv's Event attributes.
package otlplog

// Package semconv defines each name that Carillon exports once, with its meaning and stability: names of spans, span
// and resource attributes, metrics and their labels, log lines and events. Readers of the tape, dashboards, alerts and
// tests take them from here.
//
// Names of OpenTelemetry's conventions are used where there are some; all others begin with "ccl". There are two
// stabilities:
//
//   - Stable: a dashboard may depend on it; it is renamed only in a new major version.
//   - Development: the meaning stays, but the name may change in a minor version.
package semconv

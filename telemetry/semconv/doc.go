// Package semconv holds every name by which Carillon shows itself to the outside: span names, span and resource
// attributes, metrics and their labels. Each stands here once, with its meaning and its stability; readers of the tape,
// dashboards, alerts and tests take them from here.
//
// Names that Carillon makes up begin with "ccl"; where OpenTelemetry's own conventions have a name, it is theirs. Two
// stabilities are used:
//
//   - Stable: a dashboard may be built on it; it is renamed only with a new major version.
//   - Development: the meaning stays, the name may still change in a minor version.
package semconv

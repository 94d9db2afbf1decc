// Package jaeger exports the spans of jobs of real ranks to a real Jaeger, and makes the queries that a person would
// make: the acts of all ranks in one trace, a mistake beside the act that made it one, a hang while it lasts.
//
//	ranks ──OTLP──► jaeger (collector, memory) ◄──/api/traces── test
//
// Jaeger is built from the module proxy, at the version in server/go.mod and with the libraries of that release. It has
// a module of its own, so that its dependencies and Carillon's don't affect each other. The go command caches the
// build.
package jaeger

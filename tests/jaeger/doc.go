// Package jaeger shows jobs of real ranks to a real Jaeger, and asks it what a person would look for: the acts of all
// ranks in one trace, a mistake beside the act that made it one, a hang while it hangs.
//
//	ranks ──OTLP──► jaeger (collector, memory) ◄──/api/traces── test
//
// Jaeger is built from the module proxy, at the version in server/go.mod and with the libraries of that release: a
// module of its own, so that they and Carillon's don't bend each other. The go command keeps what it built.
package jaeger

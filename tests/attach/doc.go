// Package attach tests carillon agent and carillon attach on jobs whose processes have no telemetry of their own.
//
// The ranks are ordinary programs on Carillon's own engine, with all of it switched off: what they write on their tapes
// is what any writer of tapes does.
package attach

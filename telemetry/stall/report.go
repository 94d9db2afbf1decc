package stall

import (
	"time"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Stage says what became of something that takes long.
type Stage uint8

// The stages.
const (
	Slow    Stage = iota + 1 // it is older than the slow threshold; told once
	Stalled                  // it is older than the stall threshold; told again at growing intervals
	Cleared                  // something that was Slow or Stalled has ended; told once
)

// String is "slow", "stalled" or "cleared".
func (s Stage) String() string {
	names := [...]string{Slow: "slow", Stalled: "stalled", Cleared: "cleared"}
	if s == 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Report tells of one operation or act that takes, or took, too long on one rank, as it was at the time Now. Times are
// the tape's: CLOCK_MONOTONIC, nanoseconds.
type Report struct {
	Stage Stage
	Comm  *model.Comm // the model's own, which goes on changing: read it under the model's lock, and copy what is kept

	Act    tape.Act       // tape.ActNone: it is an operation, which Op and Seq describe
	ActSeq uint64         // the act's number among those of its kind
	Op     tape.Signature // of an act: the operation that it runs now, if Op.Call isn't lifecycle.CallNone
	Seq    uint64         // the operation's number, as tape.OpRecord.Seq

	Phase     tape.Phase
	Algorithm uint8 // as tape.OpRecord.Algorithm
	// InFlight is the model's own, as Comm, for what becomes known of the operation later. It is nil for an act that
	// runs none.
	InFlight *model.Op

	Start, Now int64 // when it began, and the moment of which the report tells
	Wait       int32 // the rank that it waits for; -1 if none
	WaitSince  int64 // since when; 0 if unknown

	Threshold time.Duration // the age at which this stage begins; in a Cleared, at which it would have stalled
	Normal    time.Duration // what its like normally takes here; 0 if not known yet
	Count     int           // how often it was Stalled until now, with this report; 0 if it was only slow
}

// Age is how long it had taken at the moment of the report.
func (r *Report) Age() time.Duration { return time.Duration(r.Now - r.Start) }

// News tells whether it is the first of a stall, or its end.
func (r Report) News() bool {
	return r.Count == 1 && r.Stage == Stalled || r.Count > 0 && r.Stage == Cleared
}

// Kind is what it is: the operation's name ("all_reduce"), or the act's ("init").
func (r *Report) Kind() string {
	if r.Act != tape.ActNone {
		return r.Act.String()
	}
	return r.Op.Call.String()
}

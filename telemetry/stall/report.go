package stall

import (
	"time"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Stage is the stage of an operation or act that takes long.
type Stage uint8

// The stages.
const (
	Slow    Stage = iota + 1 // older than the slow threshold; reported once
	Stalled                  // older than the stall threshold; reported again at growing intervals
	Cleared                  // it was Slow or Stalled and has ended; reported once
)

// String is "slow", "stalled" or "cleared".
func (s Stage) String() string {
	names := [...]string{Slow: "slow", Stalled: "stalled", Cleared: "cleared"}
	if s == 0 || int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Report describes an operation or act of a rank that takes, or took, too long, as it was at the time Now. Times are
// the tape's: CLOCK_MONOTONIC, nanoseconds.
type Report struct {
	Stage Stage
	Comm  *model.Comm // the model's own object, which may change: read it under the model's lock

	Act    tape.Act       // tape.ActNone: it is the operation that Op and Seq describe
	ActSeq uint64         // the act's number among those of its kind
	Op     tape.Signature // for an act: the operation that it runs now; Op.Call is lifecycle.CallNone if it runs none
	Seq    uint64         // the operation's number, as tape.OpRecord.Seq

	Phase     tape.Phase
	Algorithm uint8 // as tape.OpRecord.Algorithm
	// InFlight is the model's own operation, for later changes. It is nil for an act that runs none.
	InFlight *model.Op

	Start, Now int64 // when it began, and when the report was made
	Since      int64 // for an operation on a device: when the device reached it, if known
	Wait       int32 // the rank that it waits for; -1 if none
	WaitSince  int64 // since when; 0 if unknown

	Threshold time.Duration // the age at which this stage begins; for Cleared, the age of a stall
	Normal    time.Duration // the normal duration of such operations or acts in this process; 0 if unknown
	Count     int           // number of its Stalled reports, this one included; 0 if it was only slow
}

// Age is how long it had taken at the time of the report.
func (r *Report) Age() time.Duration { return time.Duration(r.Now - max(r.Start, r.Since)) }

// News tells whether it is the first report of a stall, or reports its end.
func (r Report) News() bool {
	return r.Count == 1 && r.Stage == Stalled || r.Count > 0 && r.Stage == Cleared
}

// Kind is the operation's name ("all_reduce") or the act's ("init").
func (r *Report) Kind() string {
	if r.Act != tape.ActNone {
		return r.Act.String()
	}
	return r.Op.Call.String()
}

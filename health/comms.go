package health

import (
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Comm is one rank's part in a communicator.
type Comm struct {
	Job       string           `json:"job,omitempty"`
	ID        lifecycle.CommID `json:"id"`
	Parent    lifecycle.CommID `json:"parent,omitzero"`
	Name      string           `json:"name"`
	Rank      int              `json:"rank"`
	Size      int              `json:"size"`
	Nodes     int              `json:"nodes,omitempty"`
	Engine    string           `json:"engine,omitempty"`
	Place     tape.Place       `json:"place,omitzero"` // absent until known
	State     string           `json:"state"`
	Launched  uint64           `json:"launched"`
	Completed uint64           `json:"completed"`
	Begun     uint64           `json:"begun"`              // the number of the last collective that began
	Captured  uint64           `json:"captured,omitempty"` // operations captured in graphs, whose launches are not seen
	InFlight  *Op              `json:"in_flight,omitempty"`
}

// Op is an operation in flight.
type Op struct {
	Call       string   `json:"call"`
	Seq        uint64   `json:"seq"` // as verdicts and spans have it
	Bytes      uint64   `json:"bytes"`
	DataType   string   `json:"dtype"`
	Peer       *int32   `json:"peer,omitempty"` // the root of a collective, or the peer of a send or receive
	Phase      string   `json:"phase,omitempty"`
	Age        float64  `json:"age_seconds"`
	WaitRank   *int32   `json:"wait_rank,omitempty"`
	WaitingFor *float64 `json:"wait_seconds,omitempty"`
}

// CommOf makes a Comm from a slot of the tape's in-flight table, at the tape's time now. It keeps no reference to the
// slot.
func CommOf(s *tape.Slot, now int64) Comm {
	c := Comm{
		ID: s.ID, Parent: s.Parent, Name: s.Name, Rank: s.Rank, Size: s.Size, Nodes: s.Nodes, Engine: s.Engine,
		Place: s.Place, State: s.State.String(), Launched: s.Launched, Completed: s.Completed, Begun: s.Begun,
		Captured: s.Captured,
	}
	if s.Launched == s.Completed {
		return c
	}
	op := &Op{
		Call: s.Op.Call.String(), Seq: s.Seq, Bytes: s.Op.Bytes,
		DataType: kernels.DataType(s.Op.DataType).String(), Age: since(s.OpStart, now),
	}
	if s.Op.Peer >= 0 {
		op.Peer = new(s.Op.Peer)
	}
	if s.Phase != tape.PhaseNone {
		op.Phase = s.Phase.String()
	}
	if s.Wait >= 0 {
		op.WaitRank, op.WaitingFor = new(s.Wait), new(since(s.WaitSince, now))
	}
	c.InFlight = op
	return c
}

// since is a time of the tape as an age in seconds, never negative.
func since(mono, now int64) float64 { return max(0, time.Duration(now-mono).Seconds()) }

package health

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// maxListedComms bounds one answer of Comms.
const maxListedComms = 10_000

// Comms is a handler that lists the communicators of the in-flight table as JSON. slots reads the table and now the
// tape's clock; both are called from any goroutine.
func Comms(slots func() []tape.Slot, now func() int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all := slots()
		answer := commsJSON{Total: len(all), Comms: make([]commJSON, 0, min(len(all), maxListedComms))}
		at := now()
		for i := range all[:min(len(all), maxListedComms)] {
			answer.Comms = append(answer.Comms, toJSON(&all[i], at))
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(answer) // the client went away; there is nobody to tell
	})
}

type commsJSON struct {
	Total int        `json:"total"` // the list ends at 10,000
	Comms []commJSON `json:"comms"`
}

type commJSON struct {
	ID        lifecycle.CommID  `json:"id"`
	Parent    *lifecycle.CommID `json:"parent,omitempty"`
	Name      string            `json:"name"`
	Rank      int               `json:"rank"`
	Size      int               `json:"size"`
	Nodes     int               `json:"nodes,omitempty"`
	Engine    string            `json:"engine,omitempty"`
	State     string            `json:"state"`
	Launched  uint64            `json:"launched"`
	Completed uint64            `json:"completed"`
	InFlight  *opJSON           `json:"in_flight,omitempty"`
}

// opJSON is the operation in flight.
type opJSON struct {
	Call       string   `json:"call"`
	Seq        uint64   `json:"seq"`
	Bytes      uint64   `json:"bytes"`
	DataType   string   `json:"dtype"`
	Peer       *int32   `json:"peer,omitempty"` // the root of a collective, or the peer of a send or receive
	Phase      string   `json:"phase,omitempty"`
	Age        float64  `json:"age_seconds"`
	WaitRank   *int32   `json:"wait_rank,omitempty"`
	WaitingFor *float64 `json:"wait_seconds,omitempty"`
}

func toJSON(s *tape.Slot, now int64) commJSON {
	c := commJSON{
		ID: s.ID, Name: s.Name, Rank: s.Rank, Size: s.Size, Nodes: s.Nodes, Engine: s.Engine,
		State: s.State.String(), Launched: s.Launched, Completed: s.Completed,
	}
	if !s.Parent.IsZero() {
		c.Parent = &s.Parent
	}
	if s.Launched == s.Completed {
		return c
	}
	op := &opJSON{
		Call: s.Op.Call.String(), Seq: s.Launched, Bytes: s.Op.Bytes, DataType: kernels.DataType(s.Op.DataType).String(),
		Age: since(s.OpStart, now),
	}
	if s.Op.Peer >= 0 {
		op.Peer = &s.Op.Peer
	}
	if s.Phase != tape.PhaseNone {
		op.Phase = semconv.PhaseName(s.Phase)
	}
	if s.Wait >= 0 {
		waiting := since(s.WaitSince, now)
		op.WaitRank, op.WaitingFor = &s.Wait, &waiting
	}
	c.InFlight = op
	return c
}

// since is a time of the tape as an age in seconds, never negative.
func since(mono, now int64) float64 { return max(0, time.Duration(now-mono).Seconds()) }

package verdict

import (
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Note is what one process says of itself at one moment, or what is known of it if it can't speak. Its JSON is what
// processes send each other: a few hundred bytes a rank.
type Note struct {
	// Member is the process's name, unique in the job.
	Member string `json:"member"`
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// Rank is the process's rank in the job; -1 if it isn't known. JobSize is how many ranks the job has; 0 if it isn't
	// known.
	Rank    int `json:"rank"`
	JobSize int `json:"job_size,omitempty"`

	Fate Fate `json:"fate"`
	// FateAge is for how long it has been so; Cause says how it is known, or how the process ended.
	FateAge time.Duration `json:"fate_age,omitempty"`
	Cause   string        `json:"cause,omitempty"`

	// Where is what the process does outside of Carillon, as far as that is known.
	Where string `json:"where,omitempty"`

	// Slots are the process's ranks in communicators. Those of a process that can't speak come from its tape, and are
	// missing if nobody can read that.
	Slots []Slot `json:"slots,omitempty"`
	// Closed are the communicators that the process ended lately, in order and without a failure.
	Closed []lifecycle.CommID `json:"closed,omitempty"`
}

// Slot is one rank of one communicator: its slot of the in-flight table, with ages instead of times.
type Slot struct {
	Comm   lifecycle.CommID `json:"comm"`
	Parent lifecycle.CommID `json:"parent,omitzero"`
	Name   string           `json:"name,omitempty"`
	Rank   int              `json:"rank"` // in the communicator; -1 if it isn't known yet
	Size   int              `json:"size"`
	// Root tells the process's ranks apart: slots of one process with one Root are one rank's.
	Root  uint32          `json:"root,omitempty"`
	State lifecycle.State `json:"state,omitempty"`

	// InFlight is how many operations were launched and have not ended. Seq and Op are those of the oldest of them, and if
	// there is none, of the last that ended.
	InFlight uint64         `json:"in_flight,omitempty"`
	Seq      uint64         `json:"seq,omitempty"`
	Op       tape.Signature `json:"op,omitzero"`
	Phase    tape.Phase     `json:"phase,omitempty"`
	// Age is since when the oldest operation is in flight, or how long ago the last one ended. Stalled says that it is in
	// flight for longer than this process is used to.
	Age     time.Duration `json:"age,omitempty"`
	Stalled bool          `json:"stalled,omitempty"`
	// Wait is the rank of the communicator that the operation waits for, -1 if none, and WaitAge since when.
	Wait    int           `json:"wait"`
	WaitAge time.Duration `json:"wait_age,omitempty"`

	// Acts are the acts of the communicator's life that have begun and not ended.
	Acts []OpenAct `json:"acts,omitempty"`
	// Failure is why the communicator failed, if it did.
	Failure *Failure `json:"failure,omitempty"`
	// Waited is how long this rank's operations waited for others within the last Window.
	Waited []Waited      `json:"waited,omitempty"`
	Window time.Duration `json:"window,omitempty"`
}

// OpenAct is an act that has begun and not ended.
type OpenAct struct {
	Act     tape.Act      `json:"act"`
	Seq     uint64        `json:"seq,omitempty"`
	Phase   tape.Phase    `json:"phase,omitempty"`
	Age     time.Duration `json:"age"`
	Stalled bool          `json:"stalled,omitempty"`
	Site    string        `json:"site,omitempty"` // where it was called, as "file:line"
}

// Failure is why a communicator failed.
type Failure struct {
	Code lifecycle.Code `json:"code"`
	Call lifecycle.Call `json:"call,omitempty"`
	Seq  uint64         `json:"seq,omitempty"`
	Peer int            `json:"peer"` // the rank at fault; -1 if it isn't known
	Text string         `json:"text,omitempty"`
	Age  time.Duration  `json:"age"`
}

// Waited is how long operations waited for one rank.
type Waited struct {
	Rank int           `json:"rank"`
	Time time.Duration `json:"time"`
	Ops  int           `json:"ops"`
}

// SlotOf is a slot of the in-flight table as a note has it. now is the time of the slot's own clock.
func SlotOf(s *tape.Slot, now int64) Slot {
	since := func(t int64) time.Duration {
		if t <= 0 || t > now {
			return 0
		}
		return time.Duration(now - t)
	}
	out := Slot{
		Comm: s.ID, Parent: s.Parent, Name: s.Name, Rank: s.Rank, Size: s.Size, Root: s.Root, State: s.State,
		InFlight: s.Launched - s.Completed, Seq: s.Seq, Op: s.Op, Phase: s.Phase, Wait: -1,
	}
	if out.InFlight == 0 {
		out.Age = since(s.LastEnd)
		return out
	}
	out.Age = since(s.OpStart)
	if s.Wait >= 0 {
		out.Wait, out.WaitAge = int(s.Wait), since(s.WaitSince)
	}
	return out
}

// maxSize is more ranks than a communicator has.
const maxSize = 1 << 20

// sane tells whether a slot can be one of a communicator: notes come from other processes.
func (s *Slot) sane() bool {
	return s.Size >= 0 && s.Size <= maxSize && s.Rank >= -1 && s.Rank < max(s.Size, 1)
}

// open finds an open act; nil if there is none of that kind.
func (s *Slot) open(act tape.Act) *OpenAct {
	for i := range s.Acts {
		if s.Acts[i].Act == act {
			return &s.Acts[i]
		}
	}
	return nil
}

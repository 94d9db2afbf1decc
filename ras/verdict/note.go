package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Note is the state of one process at one moment: its own answer, or what others know of a process that can't answer.
// Processes send it to each other as JSON: a few hundred bytes a rank.
type Note struct {
	// Member is the process's name, unique in the job.
	Member string `json:"member"`
	// Host is the host's name as the process has it. Machine is the machine's name if that is another one, as for a
	// process in a container.
	Host    string `json:"host,omitempty"`
	Machine string `json:"machine,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Rank is the process's rank in the job; -1 if it isn't known. JobSize is how many ranks the job has; 0 if it isn't
	// known.
	Rank    int `json:"rank"`
	JobSize int `json:"job_size,omitempty"`

	Fate Fate `json:"fate"`
	// FateAge is how long the process has had its fate; Cause says how that is known, or how the process ended.
	FateAge time.Duration `json:"fate_age,omitempty"`
	Cause   string        `json:"cause,omitempty"`
	// Told says that a dead process was ended by a signal that asks it to end; see process.Exit.Told.
	Told bool `json:"told,omitempty"`
	// Found says that the process was found dead, FateAge ago: it had ended some time before.
	Found bool `json:"found,omitempty"`
	// Killed says that a dead process was ended by SIGKILL.
	Killed bool `json:"killed,omitempty"`
	// Alone says that a dead process is known not to have been ended with the others of its job: neither with all of
	// them, nor by a launcher because of another rank's failure.
	Alone bool `json:"alone,omitempty"`

	// Failed says that the process exited with a code other than 0, also if it had announced that it leaves. Leaves
	// says that it has left, or ended all its communicators, a moment ago: its exit code may still become known.
	Failed bool `json:"failed,omitempty"`
	Leaves bool `json:"-"`

	// Stale says that the note is an earlier one, or from a tape that has lost its end: what the process did since is
	// not known.
	Stale bool `json:"stale,omitempty"`
	// Blamed says that an open verdict of this job names the process's end as the cause. That verdict was reached when
	// the process's tape could be read.
	Blamed bool `json:"-"`

	// Awake is how long the process has run without a pause, such as a SIGSTOP; 0 if it isn't known. Ages beyond it
	// prove little.
	Awake time.Duration `json:"awake,omitempty"`
	// Paused is how long it has paused in all.
	Paused time.Duration `json:"paused,omitempty"`
	// Terminated is how long ago the process was told to end by SIGTERM; 0 if it wasn't.
	Terminated time.Duration `json:"terminated,omitempty"`
	// Where is what the process does outside of Carillon, if known.
	Where string `json:"where,omitempty"`
	// Stack is the process's stack, read from outside when a verdict suspected it (Verdict.Suspects): sentences without
	// the subject.
	Stack []string `json:"stack,omitempty"`
	// Habits are the habits of the ranks that take part in an operation or act that stalls or failed.
	Habits []Habit `json:"habits,omitempty"`
	// Slots are the process's ranks in communicators, including communicators that it ended lately. For a process that
	// can't answer they are read from its tape; none if no process can read that.
	Slots []Slot `json:"slots,omitempty"`
}

// MachineName is the name of the machine that the process runs on, as far as it is known.
func (n *Note) MachineName() string { return cmp.Or(n.Machine, n.Host) }

// LeftFailing tells whether the process ended all its communicators, none of which had failed, and then exited with a
// failure: its program had an error of its own, and did not leave in order. Such a process counts as dead once it has
// exited.
func (n *Note) LeftFailing() bool {
	return n.Failed && len(n.Slots) > 0 && !slices.ContainsFunc(n.Slots, func(s Slot) bool {
		return s.Failure.unintended() || s.Left == nil && !n.Fate.ended()
	})
}

// Habit compares a rank's last calls with the order in which its program has made its calls before.
type Habit struct {
	Root uint32 `json:"root,omitempty"` // of the rank's slots
	// Next is the call that has always followed the rank's last ones; nil if it isn't known or the rank is in a call.
	Next *Usual `json:"next,omitempty"`
	// Trail is the rank's last calls, in the order in which they began.
	Trail Trail `json:"trail,omitempty"`
	// Odd are recent calls of the rank at places where another call had always come, the last one first.
	Odd []Odd `json:"odd,omitempty"`
	// Failed is the last act that the rank ended, if that failed.
	Failed *FailedAct `json:"failed,omitempty"`
}

// FailedAct is an act that ended with an error.
type FailedAct struct {
	Act  tape.Act         `json:"act"`
	Comm lifecycle.CommID `json:"comm"`
	Name string           `json:"comm_name,omitempty"`
	Text string           `json:"text,omitempty"` // the error
	Age  time.Duration    `json:"age"`
}

// Odd is a call, and the call that its program had always made in that place.
type Odd struct {
	Did     Usual `json:"did"`
	Instead Usual `json:"instead"`
}

// Usual is a call of a program.
type Usual struct {
	Comm  lifecycle.CommID `json:"comm"`
	Name  string           `json:"comm_name,omitempty"`
	Op    tape.Signature   `json:"op"`
	Seq   uint64           `json:"seq,omitempty"`   // of a call that was made
	Times int              `json:"times,omitempty"` // how often it came in this place, or before the odd call
}

// Slot is one rank of one communicator at one moment, with ages instead of times.
type Slot struct {
	// Comm is the communicator's id. Was is its earlier id, by which ranks in its init may still know it.
	Comm   lifecycle.CommID `json:"comm"`
	Was    lifecycle.CommID `json:"was,omitzero"`
	Parent lifecycle.CommID `json:"parent,omitzero"`
	Name   string           `json:"name,omitempty"`
	Rank   int              `json:"rank"` // in the communicator; -1 if it isn't known yet
	Size   int              `json:"size"`
	// Root tells the process's ranks apart: slots of one process with the same Root belong to one rank. Job is that
	// rank's number in the job; -1 if only the process's number is known.
	Root  uint32          `json:"root,omitempty"`
	Job   int             `json:"job_rank"`
	State lifecycle.State `json:"state,omitempty"`
	// Locals is the number of ranks on the rank's node with PXN, and 0 without it. With PXN, messages to another node
	// go through the rank of the sender's node that is on the receiver's rail. Node is the node's number in the
	// communicator, and Local the rank's index on it, its rail.
	Locals int `json:"locals,omitempty"`
	Node   int `json:"node,omitempty"`
	Local  int `json:"local,omitempty"`

	// InFlight is how many operations were launched and have not ended. Seq, Op and the fields to WaitAge describe the
	// oldest of them or, if there is none, the last that ended. Failed says that the last operation ended with an
	// error, and Refused that NCCL refused it and did nothing: it has no number that the other ranks know.
	InFlight uint64         `json:"in_flight,omitempty"`
	Seq      uint64         `json:"seq,omitempty"`
	Op       tape.Signature `json:"op,omitzero"`
	Phase    tape.Phase     `json:"phase,omitempty"`
	Failed   bool           `json:"failed,omitempty"`
	Refused  bool           `json:"refused,omitempty"`
	// Age is how long that operation has been in flight, or how long ago it ended; Took is how long one that ended
	// took. Stalled says that it has been in flight for longer than is usual in this process.
	Age     time.Duration `json:"age,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Stalled bool          `json:"stalled,omitempty"`
	// Reached says that the device's stream has come to the operation in flight; otherwise that isn't known.
	Reached bool `json:"reached,omitempty"`
	// Unproven says that the last operation was launched so long ago that it would count as stalled, and that its
	// completion is not reported.
	Unproven bool `json:"unproven,omitempty"`
	// Wait is the rank of the communicator that the operation waits for, -1 if none; WaitAge is for how long.
	Wait    int           `json:"wait"`
	WaitAge time.Duration `json:"wait_age,omitempty"`
	// Begun is the number of the last collective that this rank began, Done of the last one that ended well.
	Begun uint64 `json:"begun,omitempty"`
	Done  uint64 `json:"done,omitempty"`
	// Proven is the number of the last collective that the rank's device is known to have completed.
	Proven uint64 `json:"proven,omitempty"`
	// Splits is the number of the last split of this communicator that the rank took part in, and Made that of the
	// split of the parent that made this one; 0: none, or it isn't known.
	Splits uint64 `json:"splits,omitempty"`
	Made   uint64 `json:"made,omitempty"`
	// Created is how long ago the rank began to make the communicator; 0: it isn't known.
	Created time.Duration `json:"created,omitempty"`
	// Captured is how many operations were captured in CUDA graphs, whose replays are not seen.
	Captured uint64 `json:"captured,omitempty"`

	// Enqueues says that the calls are NCCL's: they only launch operations on a device's stream, so that the operation
	// in flight doesn't tell which messages the rank waits for.
	Enqueues bool `json:"enqueues,omitempty"`
	// Messages counts the messages that this rank began, by peer, of model.MaxPeers peers at most. Counted says that
	// these counts are complete; otherwise there may have been more. Groups counts the groups of messages.
	// Communicators with different lanes are used by different goroutines, so that their calls have no order among each
	// other. Steps says that the calls of a lane recur in steps of several kinds of calls, as those of a training; a
	// heartbeat's are all of one kind. Aside are the communicators, by their slots' indices, whose calls don't wait for
	// a call on this one: they went on for whole steps during such a call.
	Messages map[int32]model.Messages `json:"messages,omitempty"`
	Counted  bool                     `json:"counted,omitempty"`
	Groups   uint64                   `json:"groups,omitempty"`
	Lane     int                      `json:"lane,omitempty"`
	Steps    bool                     `json:"steps,omitempty"`
	Aside    []int                    `json:"aside,omitempty"`

	// Acts are the acts of the communicator's life that have begun and not ended.
	Acts []OpenAct `json:"acts,omitempty"`
	// Failure is why the communicator failed, if it did.
	Failure *Failure `json:"failure,omitempty"`
	// Left is how this rank ended the communicator, if it did.
	Left *Left `json:"left,omitempty"`
	// Revoked is how this rank's program revoked the communicator, if it did.
	Revoked *Left `json:"revoked,omitempty"`
	// Waited is how long this rank's operations waited for each other rank within the last Window.
	Waited []model.Wait  `json:"waited,omitempty"`
	Window time.Duration `json:"window,omitempty"`
	// Stay is how the communicator's device spent its time lately; the zero value if it isn't known.
	Stay model.Stay `json:"stay,omitzero"`
}

// OpenAct is an act that has begun and not ended.
type OpenAct struct {
	Act     tape.Act      `json:"act"`
	Seq     uint64        `json:"seq,omitempty"`
	Phase   tape.Phase    `json:"phase,omitempty"`
	Age     time.Duration `json:"age"`
	Stalled bool          `json:"stalled,omitempty"`
	Site    string        `json:"site,omitempty"` // where it was called: "file:line", in C "file+offset"
	// Without are the ranks of the communicator that a shrink leaves out: they don't take part. model.OtherRanks among
	// them says that there are more.
	Without []int `json:"without,omitempty"`
	// Child is the communicator that the rank joins by this act; zero if it joins none, or that isn't known.
	Child lifecycle.CommID `json:"child,omitzero"`
	// Joins says that the act is the init of a rank that joins a growing communicator. Until it ends, ranks that have
	// that communicator's parent may not know it by this id.
	Joins bool `json:"joins,omitempty"`
	// Unended says that the program has not ended this group, so that its calls are not made.
	Unended bool `json:"unended,omitempty"`
}

// Failure is why a communicator failed.
type Failure struct {
	Code lifecycle.Code `json:"code"`
	Call lifecycle.Call `json:"call,omitempty"`
	Seq  uint64         `json:"seq,omitempty"`
	Peer int            `json:"peer"` // the rank at fault; -1 if it isn't known
	Wait int            `json:"wait"` // the rank that the operation waited for; -1 if none
	Text string         `json:"text,omitempty"`
	Age  time.Duration  `json:"age"`
}

// Left is how a rank ended a communicator, or finalized it, or that its init failed.
type Left struct {
	Act tape.Act `json:"act"` // finalize, destroy, abort, revoke or init
	// Age is since the act began, as others may learn of it before it is done; for an init, since it ended.
	Age  time.Duration `json:"age"`
	Took time.Duration `json:"took,omitempty"`
	Site string        `json:"site,omitempty"` // where it was called: "file:line", in C "file+offset"
	Text string        `json:"text,omitempty"` // the cause that the program gave, or why the init failed
}

// maxSize is more ranks than a communicator has.
const maxSize = 1 << 20

// valid tells whether a slot's rank and size make sense: notes come from other processes.
func (s *Slot) valid() bool {
	return s.Size >= 0 && s.Size <= maxSize && s.Rank >= -1 && s.Rank < max(s.Size, 1)
}

// open is an open act of this kind; nil if there is none.
func (s *Slot) open(act tape.Act) *OpenAct {
	for i := range s.Acts {
		if s.Acts[i].Act == act {
			return &s.Acts[i]
		}
	}
	return nil
}

// groupJob is the group whose calls are being made; nil if there is none. An act waits for it, and for no other group.
func (s *Slot) groupJob() *OpenAct {
	for i := range s.Acts {
		if a := &s.Acts[i]; a.Act == tape.ActGroup && !a.Unended {
			return a
		}
	}
	return nil
}

// notMade tells whether the rank's init of the communicator failed.
func (s *Slot) notMade() bool { return s.Left != nil && s.Left.Act == tape.ActInit }

// joins tells whether the rank is joining a communicator that grows.
func (s *Slot) joins() bool {
	init := s.open(tape.ActInit)
	return init != nil && init.Joins
}

// ending is the open act with which the rank ends the communicator, or finalizes it; nil if there is none.
func (s *Slot) ending() *OpenAct { return cmp.Or(s.open(tape.ActFinalize), s.open(tape.ActDestroy)) }

// shrinksWithout reports whether the rank is in a shrink that leaves out, or may leave out, the given rank.
func (s *Slot) shrinksWithout(rank int) bool {
	a := s.open(tape.ActShrink)
	return a != nil && (slices.Contains(a.Without, rank) || slices.Contains(a.Without, model.OtherRanks))
}

// healthy tells whether the rank can make calls on the communicator.
func (s *Slot) healthy() bool {
	return s.Failure == nil && s.Left == nil && s.State == lifecycle.StateReady
}

// madeSince tells whether the rank began to make the communicator after something that was that long ago.
func (s *Slot) madeSince(ago time.Duration) bool { return s.Created > 0 && s.Created < ago }

// worked tells whether the rank has completed an operation in the communicator.
func (s *Slot) worked() bool {
	return s.Done > 0 || s.Seq > 1 || s.Seq == 1 && s.InFlight == 0 && !s.Failed
}

// queued tells whether the operation in flight was launched on a stream that is still busy with earlier work.
func (s *Slot) queued() bool { return s.InFlight > 0 && s.Phase == tape.PhaseQueued }

// idle tells whether no operation or act is open in the communicator.
func (s *Slot) idle() bool { return s.InFlight == 0 && len(s.Acts) == 0 }

// After is the note as it would read d later if nothing had happened since.
func (n Note) After(d time.Duration) Note {
	later := func(age *time.Duration) {
		if *age > 0 {
			*age += d
		}
	}
	later(&n.FateAge)
	later(&n.Awake)
	later(&n.Terminated)
	n.Habits = slices.Clone(n.Habits)
	for i := range n.Habits {
		if f := &n.Habits[i].Failed; *f != nil {
			*f = new(**f)
			(*f).Age += d
		}
	}
	n.Slots = slices.Clone(n.Slots)
	for i := range n.Slots {
		s := &n.Slots[i]
		s.Age += d
		later(&s.WaitAge)
		later(&s.Created)
		s.Acts = slices.Clone(s.Acts)
		for k := range s.Acts {
			s.Acts[k].Age += d
		}
		if s.Failure != nil {
			s.Failure = new(*s.Failure)
			s.Failure.Age += d
		}
		if s.Left != nil {
			s.Left = new(*s.Left)
			s.Left.Age += d
		}
		if s.Revoked != nil {
			s.Revoked = new(*s.Revoked)
			s.Revoked.Age += d
		}
	}
	return n
}

package tape

import (
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Act is something in a communicator's life that is worth a span.
type Act uint8

// The acts.
const (
	ActNone Act = iota
	ActInit
	ActSplit
	ActShrink
	ActGrow
	ActRevoke
	ActFinalize
	ActDestroy
	ActAbort
	ActGroup
	ActLeak
	numActs
)

var actNames = [numActs]string{
	"none", "init", "split", "shrink", "grow", "revoke", "finalize", "destroy", "abort", "group", "leak",
}

// Unagreed is the number behind which acts are numbered on which the ranks needn't agree: groups without a collective,
// which each rank makes by itself, and splits after a revoke, which may have interrupted a split on some ranks only.
const Unagreed = 1_000_000_000

// String is the act's name: "init", "split" and so on.
func (a Act) String() string { return words.Name("unknown", actNames[:], a) }

// Stage says which moment of an act or operation a record is about.
type Stage uint8

// The stages.
const (
	StageNone    Stage = iota
	StageStart         // it began; an operation that never waits has only an end
	StagePhase         // it went into another phase
	StageWait          // it waits for another rank, or no longer for any (operations)
	StageEnd           // it ended; Code says how
	StageMisuse        // a call, or data for it, was refused, by Code (life ring); see LifeRecord.First
	StageDevice        // the device has done it, in Time minus Start (operations)
	StageProxied       // the data it sent to a rank of another node; see Proxied (operations)
	StageStep          // one step of that data; see Proxied (operations)
	StageKernel        // its kernel ran on the device, from Start to Time (operations)
	numStages
)

var stageNames = [numStages]string{
	"none", "start", "phase", "wait", "end", "misuse", "device", "proxied", "step", "kernel",
}

// String is the stage's name: "start", "end" and so on.
func (s Stage) String() string { return words.Name("unknown", stageNames[:], s) }

// Phase is a part of an act or operation.
type Phase uint8

// The phases. Those of init first, then those of an operation.
const (
	PhaseNone       Phase = iota
	PhaseRendezvous       // finding the other ranks
	PhaseTopology         // finding out which rank is on which node
	PhaseConnect          // connecting to them
	PhaseQueued           // behind earlier work: of the communicator, or on the device's stream
	PhaseAgree            // comparing signatures with the other ranks
	PhaseTransfer         // moving data
	PhaseFinish           // local work after the last byte
	PhaseStream           // launched, and not done by the device's stream
	PhaseCredit           // waiting for the receiver's credit
	PhaseNetwork          // waiting for the network, or for the rank of this node that sends there
	PhasePool             // waiting for a free operation of the proxy's pool
	PhaseCaptured         // of an end: it was captured in a graph and not launched; the graph's launches are unseen
	PhaseGroup            // of an act or an operation in flight: called in a group that has not ended
	PhaseInProgress       // NCCL returned ncclInProgress, and was not polled since
	PhaseRefused          // of an end: NCCL did nothing, and other ranks don't know the operation's number
	numPhases
)

var phaseNames = [numPhases]string{
	"none", "rendezvous", "topology", "connect", "queued", "agree", "transfer", "finish", "stream", "credit",
	"network", "pool", "captured", "group", "in_progress", "refused",
}

// String is the phase's name: "rendezvous", "transfer" and so on.
func (p Phase) String() string { return words.Name("unknown", phaseNames[:], p) }

// SpanContext is the caller's span, as in W3C trace context. The zero value is none.
type SpanContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// CommInfo describes a communicator: the properties that don't change once they are known.
type CommInfo struct {
	ID, Parent lifecycle.CommID
	Name       string // at most MaxName bytes are kept
	Rank, Size int
	Nodes      int    // distinct hosts; 0 until known
	Engine     string // "host"; at most 15 bytes
	Place      Place
}

// NCCL tells whether this is an NCCL communicator.
func (i *CommInfo) NCCL() bool { return strings.HasPrefix(i.Engine, "nccl") }

// Enqueues tells whether the communicator's calls may return once an operation is on a stream, before it is done: calls
// of NCCL, and of an engine that has a second engine for devices ("host+cuda").
func (i *CommInfo) Enqueues() bool { return i.NCCL() || strings.Contains(i.Engine, "+") }

// Signature is the part of an operation on which its ranks must agree.
type Signature struct {
	Call      lifecycle.Call
	DataType  uint8 // kernels.DataType
	Reduction uint8 // kernels.Reduction
	Peer      int32 // root, or the peer of a send or receive; -1 if none
	Bytes     uint64
}

// Meets tells whether the call is a collective that no rank can complete alone.
func (s *Signature) Meets() bool {
	return s.Bytes > 0 && s.Call.IsOperation() && s.Call.IsCollective() && !s.Call.IsRooted()
}

// LifeRecord is one moment of an act. The CommWriter fills in the communicator, and Time if it is 0.
type LifeRecord struct {
	Time   int64 // CLOCK_MONOTONIC, nanoseconds
	Act    Act
	Call   lifecycle.Call // the user's call that is the cause; for misuse of a collective Act is ActNone
	Stage  Stage
	Seq    uint64 // which act of this kind on this communicator; 0 for init, finalize, destroy, abort
	Start  int64  // when the act began (monotonic ns); that of a group is the same on all its communicators
	Phase  Phase
	Code   lifecycle.Code
	State  lifecycle.State // the communicator's state after it
	Peer   int32           // the rank at fault; -1 if none
	Text   string          // the error's text, or a note for people; at a shrink's start "without ranks 3,5-9"
	Site   lifecycle.Site  // where the call was made; zero if unknown
	First  lifecycle.Site  // StageMisuse: where the first one was made
	Caller SpanContext     // the caller's span, if its context had one

	Child lifecycle.CommID // ActSplit: the communicator that it made; zero if none
	Ops   uint32           // ActGroup: number of operations in the group

	// Shared says that goroutines (of a C program: threads) other than the one that made the communicator had made
	// calls on it.
	Shared bool

	// Times, in StageMisuse, is how often calls like this one had been refused, if more than once; else 0. The
	// CommWriter sets it; see Refused.
	Times uint32

	// Messages counts the messages that the rank had called for, per peer, when the communicator failed, or at the end
	// of a destroy or abort; nil if they were not counted. See Slot.Messages. Writers in Go fill it in.
	Messages []PeerMessages
}

// Refused returns how often calls like this one had been refused, this time included, and how many of these refusals
// have no earlier record. Only the 1st, 2nd, 4th, 8th refusal and so on are recorded, so that a loop can't overwrite
// everything else.
func (r *LifeRecord) Refused() (times, more uint64) {
	times = uint64(max(r.Times, 1))
	return times, times - times/2
}

// CountsMessages tells whether the record has the counts of messages: it is of the communicator's failure, or of the
// end of its destroy or abort, after which no messages are called for.
func (r *LifeRecord) CountsMessages() bool {
	ends := r.Stage == StageEnd && (r.Act == ActDestroy || r.Act == ActAbort)
	return ends || r.Act == ActNone && r.Stage != StageMisuse && r.Code != lifecycle.CodeOK
}

// OpRecord is one moment of an operation.
type OpRecord struct {
	Time  int64 // CLOCK_MONOTONIC, nanoseconds
	Stage Stage
	// Seq is the number by which ranks identify the operation. For a collective, it is its number on its communicator,
	// from 1. For a Send or Recv, it is the number of the message between the two ranks in that direction. For
	// operations that progress together (a SendRecv, or neighbouring sends and receives of a group, CallGroupEnd), it
	// is their number on this rank, from 1.
	Seq       uint64
	Signature Signature
	Algorithm uint8 // algo.Algorithm
	Phase     Phase
	Wait      int32          // the rank it waits for; -1 if none
	Code      lifecycle.Code // StageEnd
	Start     int64          // when it began (monotonic ns)
	Caller    SpanContext    // StageStart: the caller's span, if its context had one
	Tallied   bool           // StageEnd: a Tally counts it
	Ordinary  bool           // StageEnd: a Tally counts it as ordinary: it never waited and was not slow
}

// IsPart tells whether a record is about a part of an operation: its kernel, or data for another node (IsProxied). Its
// Start is not the operation's.
func (r *OpRecord) IsPart() bool { return r.IsProxied() || r.Stage == StageKernel }

// IsProxied tells whether a record is about data for another node. Its Start, Wait, and the signature's Peer and Bytes
// are those of a Proxied.
func (r *OpRecord) IsProxied() bool { return r.Stage == StageProxied || r.Stage == StageStep }

// Proxied returns the contents of a record that IsProxied.
func (r *OpRecord) Proxied() Proxied {
	return Proxied{
		Peer: r.Signature.Peer, Carrier: r.Wait, Bytes: r.Signature.Bytes, Start: r.Start, End: r.Time,
		Waited: r.Phase, Code: r.Code, Step: r.Stage == StageStep,
	}
}

// Proxied is the data that an operation sent to one rank of another node, or a step of it: data handed to the proxy in
// one piece. It ends when the proxy no longer needs the caller's memory.
type Proxied struct {
	Step       bool
	Peer       int32 // the receiver
	Carrier    int32 // the rank of this node whose proxy sends it
	Bytes      uint64
	Start, End int64          // by Now
	Waited     Phase          // its last wait: PhaseCredit, PhaseNetwork or PhasePool; PhaseNone if none
	Code       lifecycle.Code // lifecycle.CodeInProgress while the operation is in flight
}

// Slot is one live communicator in the in-flight table, as one consistent moment of it.
type Slot struct {
	CommInfo
	Index      int
	Generation uint32 // of the table's slot
	Root       uint32 // Generation of the communicator that this one descends from by splits; its own if from none
	State      lifecycle.State

	Launched, Completed uint64 // operations, of this rank; one is in flight if they differ
	// Begun and Done are the numbers of the last collective (lifecycle.Call.IsCollective) that this rank began, and of
	// the last that ended well.
	Begun, Done uint64
	Seq         uint64 // of the oldest in flight, or of the last; as OpRecord.Seq
	Op          Signature
	Algorithm   uint8
	OpStart     int64 // monotonic ns; of the operation in flight, or the last one
	LastEnd     int64 // monotonic ns at which the last operation ended; 0 if none
	Phase       Phase
	Wait        int32 // rank; -1 if none
	WaitSince   int64
	// Marked says that the communicator's calls only launch operations on a device's stream: an operation is in flight,
	// in PhaseStream, until the stream has done it, as far as marks tell. Unproven says that none is in flight and the
	// last one has no mark: whether the stream has done it is unknown. CallStart is when the oldest call that has not
	// returned began, or else the last call.
	Marked, Unproven bool
	CallStart        int64
	// Proven is the number of the last collective that marks prove done, as far as the slot still has them.
	Proven uint64
	// Progress changes with each mark that the stream reaches.
	Progress uint64
	// Reached says that the stream has reached the operation in flight, and has done all earlier ones of the
	// communicator.
	Reached bool
	// Stream is equal for operations on the same stream, and mostly different for others; 0 if unknown. It is that of
	// the operation in flight, or else of the last one.
	Stream uint32
	// Captured counts the operations that ended in PhaseCaptured.
	Captured uint64
	// Counted says that the messages that this rank has called for are counted, in Messages.
	Counted  bool
	Messages Messages
}

// Messages counts the messages that a rank has called for, per peer, for the first peers. If it is full, there may be
// messages with further peers.
type Messages [maxPeers]PeerMessages

// PeerMessages counts the messages with a rank. An entry with both counts 0 is unused.
type PeerMessages struct {
	Rank           int32
	Sent, Received uint32
}

package algo

// Buffer names one of the buffers that a step works on.
type Buffer uint8

// The buffers.
const (
	In     Buffer = iota // the user's send buffer; never written
	Out                  // the user's receive buffer
	Tmp                  // scratch of Plan.Tmp elements, owned by the engine
	Posted               // the post of Step.Peer, which may be this rank, of Step.Round; only read by local steps
)

// Span is Len elements of a buffer, from element Off on.
type Span struct {
	Buf      Buffer
	Off, Len int
}

// StepKind says what a step does.
type StepKind uint8

// The step kinds.
const (
	StepSend       StepKind = iota // send Src to Peer
	StepRecv                       // receive from Peer into Dst
	StepRecvReduce                 // Dst = Src op (what arrives from Peer); IncomingFirst: the other way round
	StepCopy                       // Dst = Src
	StepReduce                     // Dst = Src op Src2
	StepPost                       // post Src, as the rank's post of Round
)

// None means no step, in Step.After.
const None = -1

// Range is the steps From, From+1, … To-1 of a plan. The zero Range is empty.
type Range struct{ From, To int }

// Step is one piece of a rank's work. Steps of one plan run concurrently as far as these rules allow:
//
//   - sends to one peer go out in the order of the list, and so do receives from one peer; all other steps are
//     unordered;
//   - After is a stream: the step may work on its first k elements as soon as step After has finished its first k
//     elements (both have the same length);
//   - Wait is a barrier: the step starts when all steps of the range have ended.
//
// A send has finished an element when its memory may be overwritten. After and Wait name earlier steps of the same
// list, or none. Engines skip a copy of memory onto itself, which occurs in place. All spans of a step have the same
// length, which is never 0.
type Step struct {
	Kind          StepKind
	Peer          int // of StepSend, StepRecv and StepRecvReduce, or of Posted
	Round         int // of Posted and StepPost; round 0 is In, which is posted before the plan begins
	Dst           Span
	Src, Src2     Span
	IncomingFirst bool
	After         int
	Wait          Range
}

// Len returns how many elements the step works on.
func (s *Step) Len() int {
	if s.Kind == StepRecv {
		return s.Dst.Len
	}
	return s.Src.Len
}

// Plan is one rank's part in one operation. A plan works with separate buffers and in place, as NCCL defines that:
//
//	AllReduce, Broadcast, Reduce   Out is In
//	AllGather, Gather (root)       In is block Rank of Out
//	ReduceScatter, Scatter (root)  Out is block Rank of In
//	AllToAll                       never: In and Out are separate
//
// Plans are shared and must not be changed.
type Plan struct {
	Algorithm Algorithm
	Tmp       int // elements of scratch
	Steps     []Step
}

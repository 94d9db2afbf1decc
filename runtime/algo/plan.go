package algo

// Buffer names one of the three buffers that a step works on.
type Buffer uint8

// The buffers. In and Out may be the same memory (in place), so a plan is right for both cases.
const (
	In  Buffer = iota // the user's send buffer; never written
	Out               // the user's receive buffer
	Tmp               // scratch of Plan.Tmp elements, owned by the engine
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
	StepRecvReduce                 // Dst = Src op (what arrives from Peer); the incoming value is the left operand if IncomingFirst
	StepCopy                       // Dst = Src
	StepReduce                     // Dst = Src op Src2
)

// None is no step, in Step.After and Step.Wait.
const None = -1

// Step is one piece of a rank's work. Steps of one plan run concurrently as far as these rules allow:
//
//   - sends to one peer go out in the order of the list, and so do receives from one peer; everything else has no order of its own;
//   - After is a stream: the step may work on its first k elements as soon as step After has finished its first k
//     elements (both have the same length). This is what makes a plan pipelined: the executor moves data in whatever
//     pieces the transport takes;
//   - Wait is a barrier: the step starts when step Wait has ended. (Wait2 is a second one.)
//
// After, Wait and Wait2 name earlier steps of the same list, or None.
type Step struct {
	Kind          StepKind
	Peer          int // StepSend, StepRecv, StepRecvReduce
	Dst           Span
	Src, Src2     Span
	IncomingFirst bool
	After         int
	Wait, Wait2   int
}

// Plan is one rank's part in one operation.
type Plan struct {
	Algorithm Algorithm
	Tmp       int // elements of scratch
	Steps     []Step
}

// Algorithm names a family of plans.
type Algorithm uint8

// The algorithms. Auto lets the tuning table choose.
const (
	Auto Algorithm = iota
	Ring
	RecursiveDoubling
	Tree   // binomial
	Direct // every rank with every other at once; through shared memory this is one copy each way
	numAlgorithms
)

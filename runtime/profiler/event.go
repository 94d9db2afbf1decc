package profiler

import (
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
)

// Mask is a set of types of events, with NCCL's bits (NCCL_PROFILE_EVENT_MASK).
type Mask uint32

// The types of events. Communicators on host memory don't have ProxyControl, and from KernelChannel on, they only have
// the API types.
const (
	Group           Mask = 1 << iota // calls made together
	Collective                       // in a group
	PointToPoint                     // a send or receive, in a group
	ProxyOp                          // data that a proxy sends or receives for an operation
	ProxyStep                        // a part of a ProxyOp
	ProxyControl                     // a proxy's other work
	KernelChannel                    // a channel of a kernel on a GPU
	NetPlugin                        // defined by a network plug-in
	GroupAPI                         // from GroupStart to the end of the group
	CollectiveAPI                    // the call of a collective
	PointToPointAPI                  // the call of a send or receive
	KernelLaunch                     // the launch of a kernel on a GPU
	CopyCollective                   // a collective by copy engines
	CopySync                         // its synchronisation
	CopyBatch                        // its copies
	KernelPhase                      // a part of a kernel on a GPU
	All             Mask = 1<<16 - 1
)

const (
	network = ProxyStep | NetPlugin
	proxied = ProxyOp | network
	below   = proxied | KernelChannel | KernelPhase // the types below an operation
	copies  = CopyCollective | CopySync | CopyBatch

	// Operations are the types that make a plug-in get groups and operations.
	Operations = All &^ ProxyControl
)

// askedBy returns the types that ask for events of type t: asking for a type includes its parents.
func askedBy(t Mask) Mask {
	switch t {
	case GroupAPI:
		return Operations
	case CollectiveAPI:
		return CollectiveAPI | Collective | below | copies
	case PointToPointAPI:
		return PointToPointAPI | PointToPoint | below
	case Group:
		return Group | Collective | PointToPoint | below
	case Collective:
		return Collective | below
	case PointToPoint:
		return PointToPoint | below
	case ProxyOp:
		return proxied
	case ProxyStep:
		return network
	default:
		return t
	}
}

// Handle is a plug-in's identifier of an event.
type Handle any

// Info describes a communicator and this process's rank in it.
type Info struct {
	ID                lifecycle.CommID
	Name              string
	Rank, Size, Nodes int
}

// Owner identifies the owner of a proxied operation. It is only data: this process doesn't look up anything by it.
type Owner struct {
	Comm       lifecycle.CommID
	Rank       int    // rank in the communicator
	PID        int    // process id of the rank
	Generation uint64 // generation of the rank's connections
}

// Operation is a collective, a send or a receive.
type Operation struct {
	Call       lifecycle.Call
	DataType   kernels.DataType
	Reduction  kernels.Reduction // for calls that reduce
	Seq        uint64            // number of the collective on its communicator, or of the message between two ranks
	Count      int               // in elements, as NCCL counts them
	Peer       int               // peer or root; -1 if none
	Algorithm  string            // of a collective
	Send, Recv uintptr           // addresses of the caller's buffers; 0 if none
}

// ProxyOperation is data that a proxy sends or receives.
type ProxyOperation struct {
	Owner     Owner
	Peer      int // the rank at the other end
	Channel   int
	Steps     int
	ChunkSize int // most bytes of a step
	IsSend    bool
}

// Event is the start of an event.
type Event struct {
	Type   Mask // one type
	At     time.Time
	Rank   int            // this process's rank in the communicator
	Parent Handle         // the plug-in's handle of the parent, or nil
	Group  Handle         // of Collective and PointToPoint: the plug-in's handle of their group
	Op     Operation      // of Collective, PointToPoint and their API
	Proxy  ProxyOperation // of ProxyOp; for ProxyStep only its owner
	Step   int            // of ProxyStep
}

// State is a state of an event, with NCCL's numbers.
type State uint8

// The reported states of events; see the package documentation for those of proxies.
const (
	SendWait          State = 9  // of ProxyStep, like the next two and SendPeerWait: waiting for the network
	RecvWait          State = 10 // waiting for the network
	RecvGPUWait       State = 12 // waiting for the rank
	ProxyOpInProgress State = 19
	SendPeerWait      State = 20 // waiting for credit or for an operation
	GroupStartAPIStop State = 23 // of GroupAPI, like the next
	GroupEndAPIStart  State = 24
)

// Change is an event's change to a state.
type Change struct {
	State State
	At    time.Time
	N     uint64 // of ProxyOp and ProxyStep: the bytes transferred
}

// End is the end of an event.
type End struct {
	At   time.Time
	Code lifecycle.Code // lifecycle.CodeOK if unknown, too
}

// Plugin gets events. Its methods, and those of its Recorders, are called one at a time, all from one goroutine.
type Plugin interface {
	// Name is for humans. New calls it once; it must return at once.
	Name() string
	// Init begins a communicator. If it returns an error, the plug-in gets none of the communicator's events. A plug-in
	// that refuses the first communicator is switched off.
	Init(info Info) (Recorder, error)
	// Mask returns the types that the plug-in asks for. It is called after each other call, and may change.
	Mask() Mask
}

// Recorder gets the events of one communicator. It must not keep them after the call.
type Recorder interface {
	// Start begins an event. Its result is passed to State and Stop; if it is nil, these are not called.
	Start(e *Event) Handle
	State(h Handle, c *Change)
	Stop(h Handle, e *End)
	// Finalize ends the communicator, and is the last call.
	Finalize()
}

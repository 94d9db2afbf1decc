package profiler

import (
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
)

// Mask is a set of types of events, with NCCL's bits (NCCL_PROFILE_EVENT_MASK).
type Mask uint32

// The types of events. ProxyControl and those from KernelChannel on, but for the API's, happen in no communicator on
// host memory.
const (
	Group           Mask = 1 << iota // calls that are made together
	Collective                       // in a group
	PointToPoint                     // a send or receive, in a group
	ProxyOp                          // what a proxy sends or receives for an operation
	ProxyStep                        // a part of that
	ProxyControl                     // what a proxy does besides
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
	below   = proxied | KernelChannel | KernelPhase // what an operation has below it
	copies  = CopyCollective | CopySync | CopyBatch

	// Operations are the types for which a plug-in is told of groups and operations.
	Operations = All &^ ProxyControl
)

// askedBy returns the types that make a plug-in receive events of type t: a child's type asks for its parents, too.
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

// Handle is what a plug-in knows an event by.
type Handle any

// Info describes a communicator and this process's rank in it.
type Info struct {
	ID                lifecycle.CommID
	Name              string
	Rank, Size, Nodes int
}

// Owner says whose a proxied operation is. It is data: nothing in this process is found by it.
type Owner struct {
	Comm       lifecycle.CommID
	Rank       int    // of the communicator
	PID        int    // of the rank's process
	Generation uint64 // of the rank's connections
}

// Operation is a collective, a send or a receive.
type Operation struct {
	Call       lifecycle.Call
	DataType   kernels.DataType
	Reduction  kernels.Reduction // of calls that reduce
	Seq        uint64            // its number: of collectives of the communicator, or of messages to or from the peer
	Count      int               // in elements, as NCCL counts them
	Peer       int               // or root; -1 if none
	Algorithm  string            // of a collective
	Send, Recv uintptr           // addresses of the caller's buffers; 0 if none
}

// ProxyOperation is what a proxy sends or receives.
type ProxyOperation struct {
	Owner     Owner
	Peer      int // the rank at the other end
	Channel   int
	Steps     int
	ChunkSize int // bytes of a step, at most
	IsSend    bool
}

// Event is the start of an event.
type Event struct {
	Type   Mask // one
	At     time.Time
	Rank   int            // whose communicator it is
	Parent Handle         // what the plug-in returned for the parent, or nil
	Group  Handle         // of Collective and PointToPoint: likewise for their group
	Op     Operation      // of Collective, PointToPoint and their API
	Proxy  ProxyOperation // of ProxyOp; of ProxyStep its owner
	Step   int            // of ProxyStep
}

// State is a state of an event, with NCCL's numbers.
type State uint8

// The states of events; see the package's documentation for those of proxies.
const (
	SendGPUWait       State = 8  // of ProxyStep, with the next four and SendPeerWait; never told
	SendWait          State = 9  // for the network
	RecvWait          State = 10 // for the network
	RecvFlushWait     State = 11 // never told
	RecvGPUWait       State = 12 // for the rank
	ControlIdle       State = 13 // of ProxyControl, with the next five; never told
	ControlActive     State = 14
	ControlSleep      State = 15
	ControlWakeup     State = 16
	ControlAppend     State = 17
	ControlAppendEnd  State = 18
	ProxyOpInProgress State = 19
	SendPeerWait      State = 20 // for credit or for an operation
	KernelStop        State = 22
	GroupStartAPIStop State = 23 // of GroupAPI, with the next
	GroupEndAPIStart  State = 24
)

// Change is a state that an event has come to.
type Change struct {
	Type  Mask // the event's
	State State
	At    time.Time
	N     uint64 // of ProxyOp and ProxyStep, how many bytes are transferred
}

// End is the end of an event.
type End struct {
	Type Mask // the event's
	At   time.Time
	Code lifecycle.Code // how it ended; lifecycle.CodeOK also where that is not known
}

// Plugin is told of events. Its methods, and those of its Recorders, are called one at a time, all by one goroutine.
type Plugin interface {
	// Name is for people. It is asked once, by New, and must return at once.
	Name() string
	// Init begins a communicator. With an error the plug-in is not told of it. A plug-in that refuses the first one is
	// switched off.
	Init(info Info) (Recorder, error)
	// Mask is what it wants to be told of. It is asked after each call, and may change.
	Mask() Mask
}

// Recorder is a plug-in's part in one communicator. The events that it is given belong to the caller.
type Recorder interface {
	// Start begins an event. State and Stop get what it returns, unless that is nil: then nothing more of the event is
	// told.
	Start(e *Event) Handle
	State(h Handle, c *Change)
	Stop(h Handle, e *End)
	// Finalize is the communicator's end, and the last call.
	Finalize()
}

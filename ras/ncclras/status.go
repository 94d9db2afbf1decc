package ncclras

import (
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Status is the state of a job according to NCCL's RAS.
type Status struct {
	// NCCL is NCCL's version, as it writes it.
	NCCL string
	// Comms are the communicators.
	Comms []Comm
	// Cut is why the answer broke off: a timeout, its size, the end of the connection. What came before is complete. It
	// is nil if the answer was read to its end.
	Cut error
	// Damage lists the impossible communicators that were left out: random memory that NCCL took for one. The rest may
	// be wrong too, then.
	Damage []string
}

// Process is a process as NCCL knows it. The zero value is a process that NCCL doesn't know.
type Process struct {
	Host netip.Addr
	PID  int // in its own pid namespace
}

// String is "10.0.0.1-4711".
func (p Process) String() string { return fmt.Sprintf("%v-%d", p.Host, p.PID) }

// Comm is a communicator.
type Comm struct {
	Hash uint64 // of its unique id, as the profiler interface has it
	Size int
	// Ranks are the ranks that NCCL reports on, in order.
	Ranks []Rank
}

// Rank is one rank of a communicator.
type Rank struct {
	Rank int
	Process
	GPU       int // the CUDA device
	Condition Condition
	// Init and Async are results (ncclResult_t) of the communicator's init, and of asynchronous errors since.
	Init, Async int
	// Launched is how many operations of each kind it has launched, by NCCL's names ("AllReduce"); nil if unknown.
	Launched map[string]uint64
}

// Condition is a rank's state according to NCCL.
type Condition uint8

// The conditions.
const (
	Running      Condition = iota // it answers
	Initializing                  // it answers, and is in the communicator's init
	Finalizing                    // it has called finalize or destroy
	Aborting                      // it has called abort
	NoComm                        // its process answers, but doesn't have the communicator
	Unresponsive                  // its process did not answer in time
	Dead                          // its process gave no answer for a minute: whether it ended is not known
)

var conditionNames = [...]string{
	"running", "initializing", "finalizing", "aborting", "no_communicator", "unresponsive", "considered_dead",
}

// String is the condition's name: "unresponsive".
func (c Condition) String() string { return words.Name("condition", conditionNames[:], c) }

// answers reports whether the rank's process answers.
func (c Condition) answers() bool { return c < Unresponsive }

const (
	maxRanks   = 1 << 20 // more than a communicator has
	maxResult  = 32      // more than ncclResult_t has
	maxKinds   = 64      // of operations
	maxDamages = 16      // that are listed
)

// check says why the communicator is impossible, if it is. It sorts the ranks.
func (c *Comm) check() error {
	if c.Size < 1 || c.Size > maxRanks {
		return fmt.Errorf("communicator %#x has %d ranks", c.Hash, c.Size)
	}
	slices.SortStableFunc(c.Ranks, func(a, b Rank) int { return a.Rank - b.Rank })
	for i := range c.Ranks {
		r := &c.Ranks[i]
		switch {
		case r.Rank < 0 || r.Rank >= c.Size:
			return fmt.Errorf("communicator %#x of %d ranks has a rank %d", c.Hash, c.Size, r.Rank)
		case i > 0 && c.Ranks[i-1].Rank == r.Rank:
			return fmt.Errorf("communicator %#x has rank %d twice", c.Hash, r.Rank)
		case r.PID < 0 || r.PID > 1<<22 || (r.PID == 0) != !r.Host.IsValid():
			return fmt.Errorf("rank %d of communicator %#x is in process %d of host %v", r.Rank, c.Hash, r.PID, r.Host)
		case min(r.Init, r.Async) < 0 || max(r.Init, r.Async) >= maxResult:
			return fmt.Errorf("rank %d of communicator %#x has results %d and %d", r.Rank, c.Hash, r.Init, r.Async)
		case len(r.Launched) > maxKinds:
			return fmt.Errorf("rank %d of communicator %#x counts %d kinds of operations", r.Rank, c.Hash,
				len(r.Launched))
		}
	}
	return nil
}

// process parses a process as NCCL writes it. It is zero if NCCL doesn't know it.
func process(host string, pid int) (Process, error) {
	if host == "unknown" || pid == -1 {
		return Process{}, nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || pid < 1 {
		return Process{}, fmt.Errorf("process %d of host %.64q", pid, host)
	}
	return Process{addr.Unmap(), pid}, nil
}

// cutAt turns the end of input into an unexpected one.
func cutAt(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // a bare EOF is the end; a wrapped one says more
		return io.ErrUnexpectedEOF
	}
	return err
}

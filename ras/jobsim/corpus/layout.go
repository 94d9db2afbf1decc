package corpus

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Style is how a program makes its calls.
type Style string

// The styles.
const (
	Blocking   Style = "blocking"   // one after the other
	Goroutines Style = "goroutines" // a second goroutine sums the gradients
	Async      Style = "async"      // gradients are summed asynchronously until the end of the step
	Groups     Style = "groups"     // stages exchange messages in groups
)

var styles = [...]Style{Blocking, Goroutines, Async, Groups}

// Layout is the shape of a training job. Rank r is at tensor-parallel place r % TP, then pipeline stage, then
// data-parallel replica.
type Layout struct {
	TP, DP, PP int
	EP         int // ranks of a replica that exchange tokens; 1: none
	PerProcess int // ranks in each process
	Hosts      int
	Style      Style

	Layers, Micro int           // of a stage, and batches of a step
	Compute       time.Duration // of a layer
	EpochSteps    int           // steps between two barriers
	Loss          bool          // the loss is summed over all ranks after each step
	Sync          bool          // each step begins with a broadcast from rank 0
}

// Ranks is how many ranks the job has.
func (l *Layout) Ranks() int { return l.TP * l.DP * l.PP }

// Processes is how many processes it has.
func (l *Layout) Processes() int { return l.Ranks() / l.PerProcess }

// String is "tp2 dp4 pp2, 16 ranks in 8 processes on 2 hosts, async".
func (l *Layout) String() string {
	ep := ""
	if l.EP > 1 {
		ep = fmt.Sprintf(" ep%d", l.EP)
	}
	return fmt.Sprintf("tp%d dp%d pp%d%s, %d ranks in %d processes on %d hosts, %s", l.TP, l.DP, l.PP, ep,
		l.Ranks(), l.Processes(), l.Hosts, l.Style)
}

// drawLayout draws a layout of at most so many ranks.
func drawLayout(r *rand.Rand, most int) Layout {
	for {
		l := Layout{
			TP: 1 << r.IntN(4), DP: 1 << r.IntN(5), PP: 1 << r.IntN(4), EP: 1, PerProcess: 1 << r.IntN(4),
			Hosts: 1 << r.IntN(3),
			Style: styles[r.IntN(len(styles))], Layers: 1 + r.IntN(3), Micro: 1 + r.IntN(4), EpochSteps: 3 + r.IntN(8),
			Loss: r.IntN(3) > 0, Compute: time.Duration(5+r.IntN(60)) * time.Millisecond,
		}
		if r.IntN(3) == 0 {
			l.DP = 1 + r.IntN(6) // not only powers of two
		}
		if r.IntN(4) == 0 && l.TP == 1 && l.DP > 1 {
			l.EP = l.DP
		}
		if r.IntN(2) == 0 {
			l.PerProcess = 1
		}
		n := l.Ranks()
		if n < 2 || n > most || n%l.PerProcess != 0 || l.Processes() < 2 || l.Processes()%l.Hosts != 0 {
			continue
		}
		return l
	}
}

// group is the number and the size of a rank's tensor-parallel (tp), pipeline (pp), data-parallel (dp) or
// expert-parallel (ep) group.
func (l *Layout) group(kind string, rank int) (number, size int) {
	replica := l.TP * l.PP
	switch kind {
	case "tp":
		return rank / l.TP, l.TP
	case "pp":
		return rank/replica*l.TP + rank%l.TP, l.PP
	case "dp":
		return rank % replica, l.DP
	default:
		return rank % replica, l.EP
	}
}

// comm is the name of a group's communicator.
func (l *Layout) comm(kind string, rank int) string {
	number, _ := l.group(kind, rank)
	return kind + strconv.Itoa(number)
}

func (l *Layout) stage(rank int) int { return rank / l.TP % l.PP }

// call is a call on values of type float32.
func call(comm string, c lifecycle.Call, peer int, bytes uint64) jobsim.Call {
	sig := tape.Signature{Call: c, DataType: uint8(kernels.Float32), Peer: int32(peer), Bytes: bytes}
	return jobsim.Call{Comm: comm, Sig: sig}
}

var barrier = jobsim.Call{Comm: "world", Sig: tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}}

// setup are the instructions before the training.
func (l *Layout) setup(rank int) instructions {
	is := instructions{jobsim.Init{}}
	for _, kind := range []string{"tp", "pp", "dp", "ep"} {
		if number, size := l.group(kind, rank); size > 1 {
			is = append(is, jobsim.Split{Comm: "world", Name: l.comm(kind, rank), Color: number})
		}
	}
	return is
}

// teardown are the instructions after the training.
func (l *Layout) teardown(rank int) instructions {
	is := instructions{barrier}
	for _, i := range slices.Backward(l.setup(rank)) {
		if s, ok := i.(jobsim.Split); ok {
			is = append(is, jobsim.Destroy{Comm: s.Name})
		}
	}
	return append(is, jobsim.Destroy{Comm: "world"})
}

// step are the instructions of a step: those of the rank's main thread, and those of its goroutine for gradients.
func (l *Layout) step(rank, step int) (is, side instructions) {
	if l.Sync {
		is = append(is, call("world", lifecycle.CallBroadcast, 0, 4096))
	}
	compute := jobsim.Compute{For: l.Compute}
	for _, direction := range []int{1, -1} { // forward and backward
		for range l.Micro {
			is = append(is, l.message(rank, lifecycle.CallRecv, -direction)...)
			for range l.Layers {
				is = append(is, compute)
				if l.TP > 1 {
					is = append(is, call(l.comm("tp", rank), lifecycle.CallAllReduce, -1, 1<<20))
				}
				if l.EP > 1 {
					is = append(is, call(l.comm("ep", rank), lifecycle.CallAllToAll, -1, 1<<18))
				}
			}
			is = append(is, l.message(rank, lifecycle.CallSend, direction)...)
		}
	}
	for bucket := range 2 {
		sum := call(l.comm("dp", rank), lifecycle.CallAllReduce, -1, uint64(1<<22)>>bucket)
		sum.Async = l.Style == Async
		switch {
		case l.DP == 1:
		case l.Style == Goroutines:
			side = append(side, jobsim.Compute{For: l.Compute * time.Duration(2*l.Layers*l.Micro)}, sum)
		default:
			is = append(is, sum)
		}
	}
	if l.Style == Async {
		is = append(is, jobsim.Wait{})
	}
	is = append(is, compute) // the optimizer
	if l.Loss {
		is = append(is, call("world", lifecycle.CallAllReduce, -1, 8))
	}
	if (step+1)%l.EpochSteps == 0 {
		is = append(is, barrier)
	}
	return is, side
}

// message is the send to, or the receive from, the stage at that distance from the rank's own; nil if there is none.
func (l *Layout) message(rank int, c lifecycle.Call, away int) instructions {
	peer := l.stage(rank) + away
	if peer < 0 || peer >= l.PP {
		return nil
	}
	m := call(l.comm("pp", rank), c, peer, 1<<19)
	if l.Style == Groups {
		return instructions{jobsim.Group{Comm: m.Comm, Sigs: []tape.Signature{m.Sig}}}
	}
	return instructions{m}
}

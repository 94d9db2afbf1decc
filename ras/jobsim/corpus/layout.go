package corpus

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Style is how a program makes its calls.
type Style uint8

// The styles.
const (
	Blocking   Style = iota // one after the other
	Goroutines              // gradients are summed by a goroutine of its own
	Async                   // gradients are summed in the background, and waited for at the end of the step
	Groups                  // stages exchange messages in groups
	numStyles
)

var styleNames = [numStyles]string{"blocking", "goroutines", "async", "groups"}

// String is the style's name.
func (s Style) String() string { return styleNames[s] }

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
	Sync          bool          // each step begins with a broadcast of what rank 0 says
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
			TP: 1 << r.IntN(4), DP: 1 << r.IntN(5), PP: 1 << r.IntN(4), EP: 1, PerProcess: 1 << r.IntN(4), Hosts: 1 << r.IntN(3),
			Style: Style(r.IntN(int(numStyles))), Layers: 1 + r.IntN(3), Micro: 1 + r.IntN(4), EpochSteps: 3 + r.IntN(8),
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

// The names of a rank's communicators.
func (l *Layout) tp(rank int) string { return fmt.Sprintf("tp%d", rank/l.TP) }

func (l *Layout) pp(rank int) string {
	return fmt.Sprintf("pp%d", rank/(l.TP*l.PP)*l.TP+rank%l.TP)
}
func (l *Layout) dp(rank int) string { return fmt.Sprintf("dp%d", rank%(l.TP*l.PP)) }
func (l *Layout) ep(rank int) string { return fmt.Sprintf("ep%d", rank%(l.TP*l.PP)) }

func (l *Layout) stage(rank int) int { return rank / l.TP % l.PP }

// signatures of the program's calls.
func sum(bytes uint64) tape.Signature {
	return tape.Signature{Call: lifecycle.CallAllReduce, DataType: 9, Peer: -1, Bytes: bytes}
}

func send(peer int, bytes uint64) tape.Signature {
	return tape.Signature{Call: lifecycle.CallSend, DataType: 9, Peer: int32(peer), Bytes: bytes}
}

func recv(peer int, bytes uint64) tape.Signature {
	return tape.Signature{Call: lifecycle.CallRecv, DataType: 9, Peer: int32(peer), Bytes: bytes}
}

// setup is what a rank does before it trains.
func (l *Layout) setup(rank int) []jobsim.Instruction {
	is := []jobsim.Instruction{jobsim.Init{}}
	split := func(name string, color int, want bool) {
		if want {
			is = append(is, jobsim.Split{Comm: "world", Name: name, Color: color})
		}
	}
	split(l.tp(rank), rank/l.TP, l.TP > 1)
	split(l.pp(rank), rank/(l.TP*l.PP)*l.TP+rank%l.TP, l.PP > 1)
	split(l.dp(rank), rank%(l.TP*l.PP), l.DP > 1)
	split(l.ep(rank), rank%(l.TP*l.PP), l.EP > 1)
	return is
}

// step is what the main thread of a rank does in a step, side what its goroutine for gradients does beside it.
func (l *Layout) step(rank, step int) (is, side []jobsim.Instruction) {
	if l.Sync {
		config := tape.Signature{Call: lifecycle.CallBroadcast, DataType: 9, Peer: 0, Bytes: 4096}
		is = append(is, jobsim.Call{Comm: "world", Sig: config})
	}
	stage := l.stage(rank)
	compute := jobsim.Compute{For: l.Compute}
	layers := func() {
		for range l.Layers {
			is = append(is, compute)
			if l.TP > 1 {
				is = append(is, jobsim.Call{Comm: l.tp(rank), Sig: sum(1 << 20)})
			}
			if l.EP > 1 {
				is = append(is, jobsim.Call{Comm: l.ep(rank), Sig: tape.Signature{
					Call: lifecycle.CallAllToAll, DataType: 9, Peer: -1, Bytes: 1 << 18,
				}})
			}
		}
	}
	message := func(sig tape.Signature) {
		if l.Style == Groups {
			is = append(is, jobsim.Group{Comm: l.pp(rank), Sigs: []tape.Signature{sig}})
		} else {
			is = append(is, jobsim.Call{Comm: l.pp(rank), Sig: sig})
		}
	}
	for range l.Micro { // forward
		if stage > 0 {
			message(recv(stage-1, 1<<19))
		}
		layers()
		if stage < l.PP-1 {
			message(send(stage+1, 1<<19))
		}
	}
	for range l.Micro { // backward
		if stage < l.PP-1 {
			message(recv(stage+1, 1<<19))
		}
		layers()
		if stage > 0 {
			message(send(stage-1, 1<<19))
		}
	}
	if l.DP > 1 {
		for bucket := range 2 {
			call := jobsim.Call{Comm: l.dp(rank), Sig: sum(uint64(1<<22) >> bucket), Async: l.Style == Async}
			if l.Style == Goroutines {
				side = append(side, jobsim.Compute{For: l.Compute * time.Duration(2*l.Layers*l.Micro)}, call)
			} else {
				is = append(is, call)
			}
		}
	}
	if l.Style == Async {
		is = append(is, jobsim.Wait{})
	}
	is = append(is, compute) // the optimizer
	if l.Loss {
		is = append(is, jobsim.Call{Comm: "world", Sig: sum(8)})
	}
	if (step+1)%l.EpochSteps == 0 {
		is = append(is, jobsim.Call{Comm: "world", Sig: tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}})
	}
	return is, side
}

// teardown is what a rank does in the end.
func (l *Layout) teardown(rank int) []jobsim.Instruction {
	is := []jobsim.Instruction{jobsim.Call{Comm: "world", Sig: tape.Signature{Call: lifecycle.CallBarrier, Peer: -1}}}
	destroy := func(name string, want bool) {
		if want {
			is = append(is, jobsim.Destroy{Comm: name})
		}
	}
	destroy(l.ep(rank), l.EP > 1)
	destroy(l.dp(rank), l.DP > 1)
	destroy(l.pp(rank), l.PP > 1)
	destroy(l.tp(rank), l.TP > 1)
	return append(is, jobsim.Destroy{Comm: "world"})
}

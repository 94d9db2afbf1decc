package dying

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

var (
	rounds = flag.Int("rounds", 6, "rounds of each phase, layout and fault")
	seed   = flag.Uint64("seed", 0, "of the moments at which ranks die; 0 takes another one each time")
)

const (
	// soon is the time within which all ranks must know of a fault, unless making a communicator takes long on this
	// machine.
	soon = 2 * time.Second
	// patience is for all other waits of a round.
	patience = 30 * time.Second
)

const size = 4

// layouts have the host of each rank.
var layouts = map[string][size]string{
	"one host":   {"a", "a", "a", "a"},
	"two hosts":  {"a", "b", "a", "b"},
	"four hosts": {"a", "b", "c", "d"},
}

func TestAllLearnOfAFault(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	for _, phase := range []string{"init", "split", "shrink", "grow"} {
		for layout, hosts := range layouts {
			for _, f := range []fault{killed, ended} {
				t.Run(fmt.Sprintf("%s/%s/%s", phase, layout, f), func(t *testing.T) {
					t.Parallel()
					moments := rand.New(rand.NewPCG(*seed, 0))
					healthy := newRound(t, phase, hosts, -1, none, 0, patience)
					whole := healthy.check()
					arrival := max(3*soon/4, 3*whole) // the machine may be busy
					for i := range *rounds {
						members := size
						if phase == "shrink" {
							members--
						}
						victim, after := moments.IntN(members), time.Duration(moments.Int64N(int64(whole)))
						r := newRound(t, phase, hosts, victim, f, after, arrival)
						if r.check(); t.Failed() {
							t.Fatalf("round %d of seed %d: rank %d was %s after %v of %v",
								i, *seed, victim, f, after, whole)
						}
					}
				})
			}
		}
	}
}

// round makes one communicator with real processes.
type round struct {
	t      *testing.T
	phase  string
	victim int // -1: none
	fault  fault
	within time.Duration // all ranks must know of the fault within this time
	ranks  []*rank
}

type rank struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer
	lines  chan said // closed when the rank ends
}

func newRound(t *testing.T, phase string, hosts [size]string, victim int, f fault, after, arrival time.Duration,
) *round {
	t.Helper()
	r := &round{t: t, phase: phase, victim: victim, fault: f, within: arrival + soon/4}
	for i := range size {
		p := part{Rank: i, Size: size, Phase: phase, Host: hosts[i], After: after, Arrival: arrival}
		if i == victim {
			p.Fault = f
		}
		r.ranks = append(r.ranks, r.start(&p))
	}
	ids := 1
	if phase == "grow" {
		ids = 2
	}
	for range ids {
		r.tell(r.next(0, patience).ID)
	}
	for i := range r.ranks { // before the fault is made: a rank that dies loses the messages that it carries
		if s := r.next(i, patience); s.What != "begins" {
			r.over()
			t.Fatalf("rank %d ended before the fault: %s", i, r.ranks[i].stderr.String())
		}
	}
	r.tell("begin")
	return r
}

// tell writes a line to all ranks.
func (r *round) tell(line string) {
	r.t.Helper()
	for _, k := range r.ranks {
		if _, err := fmt.Fprintln(k.in, line); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *round) start(p *part) *rank {
	text, err := json.Marshal(p)
	if err != nil {
		r.t.Fatal(err)
	}
	k := &rank{cmd: exec.Command(os.Args[0]), lines: make(chan said, 4)}
	k.cmd.Env = append(os.Environ(), partVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	k.cmd.Stderr = &k.stderr
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(k.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var s said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				k.lines <- s
			}
		}
	}()
	return k
}

// next returns the next line of a rank; What is empty if its process has ended.
func (r *round) next(i int, within time.Duration) said {
	r.t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case s := <-r.ranks[i].lines:
		return s
	case <-limit.C:
		r.t.Errorf("rank %d has said nothing for %v", i, within)
		return said{}
	}
}

// end returns the last line of a rank, and whether it said before that its communicator is ready.
func (r *round) end(i int, within time.Duration) (s said, ready bool) {
	for s = r.next(i, within); s.What == "ready"; s = r.next(i, within) {
		ready = true
	}
	return s, ready
}

// check waits for the fault, and then for all other ranks to learn of it. It ends the round, and returns how long the
// first rank took to make the communicator.
func (r *round) check() time.Duration {
	r.t.Helper()
	defer r.over()
	within, faulty := patience, false
	if r.victim >= 0 {
		end, _ := r.end(r.victim, patience) // a dead rank prints nothing more
		faulty, within = r.fault == killed || end.Failed, r.within
		if r.t.Failed() {
			return 0
		}
	}
	var took time.Duration
	for i := range r.ranks {
		if i == r.victim || r.phase == "shrink" && i == size-1 {
			continue
		}
		end, _ := r.end(i, within)
		took = max(took, end.Took)
		switch {
		case r.t.Failed():
		case end.What == "":
			err := r.ranks[i].cmd.Wait() // this completes stderr
			r.t.Errorf("rank %d ended: %v: %s", i, err, r.ranks[i].stderr.String())
		case !faulty && end.Code != lifecycle.CodeOK:
			r.t.Errorf("rank %d failed without a fault: %s", i, end.Text)
		case faulty && !r.right(&end):
			r.t.Errorf("rank %d was told (%v, rank %d): %s", i, end.Code, end.Peer, end.Text)
		}
	}
	return took
}

// right tells whether a rank was told of the fault, and of the right rank.
func (r *round) right(end *said) bool {
	switch {
	case r.phase == "grow" && end.Code == lifecycle.CodeAbandoned:
		// Ranks that join are told by a rank that they reach, which says why it leaves.
		return end.Peer == r.victim || strings.Contains(end.Text, fmt.Sprintf("rank %d of", r.victim))
	case r.fault == ended:
		return end.Peer == r.victim && end.Code == lifecycle.CodeAbandoned
	case end.Code == lifecycle.CodeNotJoined: // the victim died before it arrived
		return end.Peer == r.victim && strings.Contains(end.Text, fmt.Sprintf("rank %d has not arrived;", r.victim))
	default:
		return end.Peer == r.victim && end.Code == lifecycle.CodeRankDead
	}
}

func (r *round) over() {
	for _, k := range r.ranks {
		_ = k.cmd.Process.Kill() // it may have ended
		_ = k.cmd.Wait()         // says that it was killed
	}
}

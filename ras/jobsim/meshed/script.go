package meshed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is a kind of fault.
type Fault string

// The faults.
const (
	FaultKill      Fault = "kill"      // a process is killed; then the others restart without it
	FaultStop      Fault = "stop"      // a process is stopped and continued
	FaultPartition Fault = "partition" // a machine is disconnected and connected again
	FaultLoss      Fault = "loss"      // a tenth of all packets is lost for a while
	FaultDelay     Fault = "delay"     // packets take 20 to 40 ms for a while
	FaultSleep     Fault = "sleep"     // a rank sleeps before its call, and wakes up
)

// Faults lists all faults.
func Faults() []Fault {
	return []Fault{FaultKill, FaultStop, FaultPartition, FaultLoss, FaultDelay, FaultSleep}
}

// ParseFaults reads a list such as "kill,stop".
func ParseFaults(list string) (faults []Fault, err error) {
	for name := range strings.SplitSeq(list, ",") {
		f := Fault(strings.TrimSpace(name))
		if !slices.Contains(Faults(), f) {
			return nil, fmt.Errorf("%q is no fault, allowed are %v", name, strings.Trim(fmt.Sprint(Faults()), "[]"))
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Plan is a job and its faults, whose order and victims follow from the seed.
type Plan struct {
	Seed     uint64
	Ranks    int
	Each     int           // ranks of a process
	Duration time.Duration // in virtual time, about, without start and end
	Faults   []Fault       // to inject, each in turn
}

const (
	quietTime = 30 * time.Second // without faults, at the start
	faultTime = 20 * time.Second // of a fault, about
)

// members spreads the ranks: eight processes on a machine, or fewer on four machines.
func (p *Plan) members() (members, machines int) {
	members = p.Ranks / p.Each
	on := max(min(8, members/4), 1)
	for members%on != 0 {
		on--
	}
	return members, members / on
}

// Validate names the first wrong field, its value and what is allowed.
func (p *Plan) Validate() error {
	switch {
	case p.Each < 1 || p.Each > 64:
		return fmt.Errorf("%d ranks in a process: allowed are 1 to 64", p.Each)
	case p.Ranks < 8*p.Each || p.Ranks > 1<<15 || p.Ranks%p.Each != 0:
		return fmt.Errorf("%d ranks: allowed are multiples of %d, from %d to %d", p.Ranks, p.Each, 8*p.Each, 1<<15)
	case p.Duration < quietTime+faultTime || p.Duration > 24*time.Hour:
		return fmt.Errorf("a duration of %v: allowed are %v to 24h", p.Duration, quietTime+faultTime)
	case len(p.Faults) == 0:
		return fmt.Errorf("no faults: allowed are %v", Faults())
	}
	if members, machines := p.members(); members < 2*machines {
		return fmt.Errorf("%d processes can't be spread evenly over machines with two or more on "+
			"each: take a multiple of %d ranks", members, 8*p.Each)
	}
	return nil
}

// Step is one fault of the script.
type Step struct {
	Fault  Fault
	Victim int // a member; for a partition a machine; for a sleep a rank; 0 for loss and delay
}

// String is "kill member 17".
func (s Step) String() string {
	switch s.Fault {
	case FaultPartition:
		return fmt.Sprintf("cut off machine %d", s.Victim)
	case FaultSleep:
		return fmt.Sprintf("rank %d sleeps", s.Victim)
	case FaultKill, FaultStop:
		return fmt.Sprintf("%s member %d", s.Fault, s.Victim)
	default:
		return string(s.Fault)
	}
}

// Script lists the faults in order.
func (p *Plan) Script() []Step {
	r := rand.New(rand.NewPCG(p.Seed, 2))
	members, machines := p.members()
	on := members / machines
	dead := map[int]bool{}
	alone := map[int]bool{} // machines on which a process was killed: another one must live to report it
	living := func() int {
		for {
			if m := r.IntN(members); !dead[m] {
				return m
			}
		}
	}
	var steps []Step
	var order []Fault
	for range max(int((p.Duration-quietTime)/faultTime), 1) {
		if len(order) == 0 {
			for _, i := range r.Perm(len(p.Faults)) {
				order = append(order, p.Faults[i])
			}
		}
		s := Step{Fault: order[0]}
		order = order[1:]
		switch s.Fault {
		case FaultKill:
			if len(alone) == machines { // each has one dead process
				continue
			}
			for s.Victim = living(); alone[s.Victim/on]; {
				s.Victim = living()
			}
			dead[s.Victim], alone[s.Victim/on] = true, true
		case FaultStop:
			s.Victim = living()
		case FaultSleep:
			s.Victim = living()*p.Each + r.IntN(p.Each)
		case FaultPartition:
			s.Victim = r.IntN(machines)
		case FaultLoss, FaultDelay:
		}
		steps = append(steps, s)
	}
	return steps
}

package jobsim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config is how a job is laid out, and how its network and programs behave.
type Config struct {
	Processes int
	Hosts     int           // the processes are spread over them evenly, in order; default 1
	Latency   time.Duration // of a collective once all have come; default 100µs
	OnError   Reaction      // what a program does when a call returns an error
	Start     int64         // the clock at the beginning; default one hour
	// Blind tells that the runtime notices nothing by itself, as NCCL: what a rank waits for in vain, it waits for for
	// ever.
	Blind bool
}

// Reaction is what a program does when a call returns an error.
type Reaction uint8

// The reactions.
const (
	Exit  Reaction = iota // it exits with 1, as with log.Fatal
	Close                 // it ends its communicators, and its process in order, with an exit code of 1
	Stay                  // the thread that made the call does nothing more
)

// String is what such a program does: "exit".
func (r Reaction) String() string {
	return [...]string{Exit: "exit", Close: "close their communicators and exit", Stay: "do nothing more"}[r]
}

// Job is a simulated job.
type Job struct {
	clock
	Config
	Processes []*Process
	Ranks     []*Rank // by rank

	comms   int             // so far
	cut     map[string]bool // hosts that are cut off from all others
	world   *comm
	joining map[*Rank]func() // ranks that wait in the init of the world
	held    []*meeting       // to which all have come, and which the network holds up
}

// State is how a process is.
type State uint8

// The states.
const (
	Running State = iota
	Stopped
	Dead     // it ended without saying so
	Departed // it ended in order
)

// Ended tells whether the process has ended.
func (s State) Ended() bool { return s == Dead || s == Departed }

// Process is one process of the job.
type Process struct {
	job   *Job
	Index int
	Host  string
	State State
	Since int64 // when it came into its state
	How   process.Exit
	Ranks []*Rank

	// Observe takes what the process writes onto its tape, if it isn't nil.
	Observe func(*tape.Event)
	// Changed hears that State has changed, if it isn't nil.
	Changed func()

	generations uint32
	pending     []func() // what it would do, if it were not stopped
	leaving     int      // ranks that leave together
}

// Rank is one rank of the job.
type Rank struct {
	Job     int
	Process *Process
	parts   map[string]*Part // by the communicator's name
	order   []*Part
	root    uint32
	threads []*thread
}

// Part is a rank's part in a communicator.
type Part struct {
	rank   *Rank
	comm   *comm
	slot   tape.Slot
	queue  []*operation // the first one runs
	sent   map[int]uint64
	recvd  map[int]uint64
	groups uint64
	splits int
	fault  *Fault // why it failed
	ended  bool   // destroyed or aborted
}

// comm is a communicator.
type comm struct {
	info     tape.CommInfo
	parts    []*Part // by rank; nil if it is not there yet
	open     map[meetingKey]*meeting
	notice   *Fault           // what the first rank that failed told the others
	splits   map[[2]int]Split // by a split's number and a rank: what the rank asked for
	children map[[2]int]*comm // by a split's number and color
	gone     map[int]*Fault   // ranks that are dead, or have ended the communicator, as far as the others know
}

// Fault is the error of a call.
type Fault struct {
	Code lifecycle.Code
	Peer int
	Text string
}

// New makes a job of which each process has ranks ranks, and no communicators.
func New(c Config, ranks int) *Job {
	c.Hosts = cmp.Or(c.Hosts, 1)
	c.Latency = cmp.Or(c.Latency, 100*time.Microsecond)
	j := &Job{Config: c, cut: map[string]bool{}, joining: map[*Rank]func(){}}
	j.now = cmp.Or(c.Start, int64(time.Hour))
	each := (c.Processes + c.Hosts - 1) / c.Hosts
	for i := range c.Processes {
		p := &Process{job: j, Index: i, Host: fmt.Sprintf("host%d", i/each), Since: j.now}
		for range ranks {
			r := &Rank{Job: len(j.Ranks), Process: p, parts: map[string]*Part{}}
			p.Ranks = append(p.Ranks, r)
			j.Ranks = append(j.Ranks, r)
		}
		j.Processes = append(j.Processes, p)
	}
	return j
}

// newComm makes a communicator, of which no rank has its part yet.
func (j *Job) newComm(name string, parent lifecycle.CommID, size int) *comm {
	j.comms++
	var id lifecycle.CommID
	binary.BigEndian.PutUint64(id[:], uint64(j.comms))
	copy(id[8:], name)
	return &comm{
		info:  tape.CommInfo{ID: id, Parent: parent, Name: name, Size: size, Nodes: j.Hosts, Engine: "host"},
		parts: make([]*Part, size), open: map[meetingKey]*meeting{}, gone: map[int]*Fault{},
		splits: map[[2]int]Split{}, children: map[[2]int]*comm{},
	}
}

// join gives a rank its part in a communicator, of which call makes it a member, and begins its init.
func (r *Rank) join(c *comm, rank int, call lifecycle.Call) *Part {
	r.Process.generations++
	g := r.Process.generations
	if c.info.Parent.IsZero() || r.root == 0 {
		r.root = g
	}
	p := &Part{rank: r, comm: c, sent: map[int]uint64{}, recvd: map[int]uint64{}}
	p.slot = tape.Slot{
		CommInfo: c.info, Index: int(g - 1), Generation: g, Root: r.root, State: lifecycle.StateInitializing, Wait: -1,
		Op: tape.Signature{Peer: -1},
	}
	p.slot.Rank = rank
	c.parts[rank] = p
	r.parts[c.info.Name] = p
	r.order = append(r.order, p)
	p.begin(tape.ActInit, call, 0)
	return p
}

// ready ends the init of a communicator that call made from start on.
func (part *Part) ready(call lifecycle.Call, start int64) {
	part.slot.State = lifecycle.StateReady
	part.end(tape.ActInit, call, 0, start, nil)
}

// Comm makes a communicator of the given ranks of the job, ready on all of them, as a split of the one called parent
// makes it, or an init if parent is empty.
func (j *Job) Comm(name, parent string, ranks []int) {
	var id lifecycle.CommID
	call := lifecycle.CallInitRank
	if parent != "" {
		id, call = j.Ranks[ranks[0]].parts[parent].comm.info.ID, lifecycle.CallSplit
	}
	c := j.newComm(name, id, len(ranks))
	for i, r := range ranks {
		j.Ranks[r].join(c, i, call).ready(call, j.now)
	}
}

// Reset lets all threads end, and takes all communicators off the tables, as programs do that begin anew.
func (j *Job) Reset() {
	for _, r := range j.Ranks {
		for _, t := range r.threads {
			t.ended = true
		}
		r.threads = nil
		for _, part := range r.order {
			if !part.ended {
				part.fault = nil
				part.abort("the job begins anew")
			}
		}
		r.parts, r.order, r.root = map[string]*Part{}, nil, 0
	}
	j.held = nil
}

// Slots appends the in-flight table of the process to buf.
func (p *Process) Slots(buf []tape.Slot) []tape.Slot {
	for _, r := range p.Ranks {
		for _, part := range r.order {
			if part.ended {
				continue
			}
			s := part.slot
			if len(part.queue) > 0 && part.queue[0].started && s.Phase != tape.PhaseQueued {
				s.Wait = part.queue[0].waitsFor()
				s.WaitSince = 0
				if s.Wait >= 0 {
					s.WaitSince = part.queue[0].waitSince
				}
			}
			buf = append(buf, s)
		}
	}
	return buf
}

// write puts an event onto the process's tape.
func (part *Part) write(ev tape.Event) {
	if o := part.rank.Process.Observe; o != nil {
		ev.Comm, ev.Generation, ev.Root, ev.Slot = part.slot.CommInfo, part.slot.Generation, part.slot.Root,
			part.slot.Index
		o(&ev)
	}
}

func (part *Part) life(r tape.LifeRecord) {
	r.Time = part.rank.Process.job.now
	part.write(tape.Event{IsLife: true, Life: r})
}

// begin writes the start of an act.
func (part *Part) begin(act tape.Act, call lifecycle.Call, seq uint64) {
	now := part.rank.Process.job.now
	part.act(act, tape.LifeRecord{Call: call, Stage: tape.StageStart, Seq: seq, Start: now, Peer: -1})
}

// end writes the end of an act that began at start.
func (part *Part) end(act tape.Act, call lifecycle.Call, seq uint64, start int64, fault *Fault) {
	r := tape.LifeRecord{Call: call, Stage: tape.StageEnd, Seq: seq, Start: start, Peer: -1}
	if fault != nil {
		r.Code, r.Peer, r.Text = fault.Code, int32(fault.Peer), fault.Text
	}
	part.act(act, r)
}

func (part *Part) act(act tape.Act, r tape.LifeRecord) {
	r.Act, r.State = act, part.slot.State
	r.Site = lifecycle.Site{Func: "main.train", File: "train.go", Line: 40 + int(act)}
	part.life(r)
}

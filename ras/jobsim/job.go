package jobsim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config is the layout of a job, and how its network and programs behave.
type Config struct {
	Processes int
	Hosts     int           // the processes are spread over them evenly; default 1
	Latency   time.Duration // of a collective after its last rank has entered it; default 100µs
	OnError   Reaction      // of a program whose call returns an error
	Start     int64         // the clock at the beginning; default one hour
	// Blind makes the runtime detect no error, like NCCL: a rank waits for a dead or mismatched rank for ever.
	Blind bool
}

// Reaction is what a program does when a call returns an error.
type Reaction uint8

// The reactions.
const (
	Exit  Reaction = iota // the process exits with 1, as with log.Fatal
	Close                 // the process closes its runtime and exits with 1
	Stay                  // the calling thread ends, the process stays
	GoOn                  // the thread continues with its next instruction
)

// String is what such a program does: "exit".
func (r Reaction) String() string {
	return [...]string{
		Exit: "exit", Close: "close their communicators and exit", Stay: "do nothing more", GoOn: "go on",
	}[r]
}

// Job is a simulated job.
type Job struct {
	clock
	Config
	Processes []*Process
	Ranks     []*Rank // by rank

	comms   int             // how many were made
	cut     map[string]bool // disconnected hosts
	world   *comm
	joining map[*Rank]func() // ranks in the init of the world, and what completes it
	held    []*meeting       // complete, but for a cut of the network
}

// State is the state of a process.
type State uint8

// The states.
const (
	Running State = iota
	Stopped
	Dead     // it ended without closing its runtime
	Departed // it closed its runtime and exited
)

// Ended tells whether the process has ended.
func (s State) Ended() bool { return s == Dead || s == Departed }

// Process is one process of the job.
type Process struct {
	job   *Job
	Index int
	Host  string
	State State
	Since int64 // of State
	How   process.Exit
	Ranks []*Rank

	// Observe takes each event that the process writes to its tape; nil: none does.
	Observe func(*tape.Event)
	// Changed is called after State has changed; nil: nothing is.
	Changed func()

	generations uint32
	pending     []func() // calls that wait for SIGCONT
	leaving     int      // ranks that have run Leave
	closes      bool     // the program closes the runtime, so that its acts are the runtime's
}

// Rank is one rank of the job.
type Rank struct {
	Job     int
	Process *Process
	members map[string]*membership // by the communicator's name
	order   []*membership
	root    uint32
	threads []*thread
}

// membership is that of a rank in a communicator.
type membership struct {
	rank    *Rank
	comm    *comm
	slot    tape.Slot
	queue   []*operation // the first one runs or is about to
	sent    map[int]uint64
	recvd   map[int]uint64
	groups  uint64
	splits  int
	shrinks int
	fault   *Fault // why it failed
	ended   bool   // destroyed or aborted
}

// comm is a communicator.
type comm struct {
	info     tape.CommInfo
	members  []*membership // by rank; nil before it joins
	open     map[meetingKey]*meeting
	notice   *Fault           // from the first rank that failed to the others
	splits   map[[2]int]Split // what each rank asked for, by the split's number and the rank
	children map[[2]int]*comm // by the split's number and color
	shrunk   map[int]*comm    // by the shrink's number
	joined   []func()         // of a shrink: complete the inits of the ranks that have come
	gone     map[int]*Fault   // ranks that the others know to be dead or to have left
}

// Fault is the error of a call.
type Fault struct {
	Code lifecycle.Code
	Peer int
	Text string
}

// New makes a job without communicators. Each process has the given number of ranks.
func New(c Config, ranks int) *Job {
	c.Hosts = cmp.Or(c.Hosts, 1)
	c.Latency = cmp.Or(c.Latency, 100*time.Microsecond)
	j := &Job{Config: c, cut: map[string]bool{}, joining: map[*Rank]func(){}}
	j.now = cmp.Or(c.Start, int64(time.Hour))
	each := (c.Processes + c.Hosts - 1) / c.Hosts
	for i := range c.Processes {
		p := &Process{job: j, Index: i, Host: fmt.Sprintf("host%d", i/each), Since: j.now}
		for range ranks {
			r := &Rank{Job: len(j.Ranks), Process: p, members: map[string]*membership{}}
			p.Ranks = append(p.Ranks, r)
			j.Ranks = append(j.Ranks, r)
		}
		j.Processes = append(j.Processes, p)
	}
	return j
}

// newComm makes a communicator without members.
func (j *Job) newComm(name string, parent lifecycle.CommID, size int) *comm {
	j.comms++
	var id lifecycle.CommID
	binary.BigEndian.PutUint64(id[:], uint64(j.comms))
	copy(id[8:], name)
	return &comm{
		info:    tape.CommInfo{ID: id, Parent: parent, Name: name, Size: size, Nodes: j.Hosts, Engine: "host"},
		members: make([]*membership, size), open: map[meetingKey]*meeting{}, gone: map[int]*Fault{},
		splits: map[[2]int]Split{}, children: map[[2]int]*comm{}, shrunk: map[int]*comm{},
	}
}

// join makes the rank a member of a communicator and begins its init, which call asked for. ready ends the init.
func (r *Rank) join(c *comm, rank int, call lifecycle.Call) (p *membership, ready func()) {
	r.Process.generations++
	g := r.Process.generations
	if c.info.Parent.IsZero() || r.root == 0 {
		r.root = g
	}
	p = &membership{rank: r, comm: c, sent: map[int]uint64{}, recvd: map[int]uint64{}}
	p.slot = tape.Slot{
		CommInfo: c.info, Index: int(g - 1), Generation: g, Root: r.root, State: lifecycle.StateInitializing, Wait: -1,
		Op: tape.Signature{Peer: -1}, Counted: true,
	}
	p.slot.Rank = rank
	c.members[rank] = p
	r.members[c.info.Name] = p
	r.order = append(r.order, p)
	end := p.begin(tape.ActInit, call, 0)
	return p, func() {
		p.slot.State = lifecycle.StateReady
		end(nil)
	}
}

// Comm makes a communicator of the given ranks of the job, ready on all of them: by a split of parent, or by an init if
// parent is empty.
func (j *Job) Comm(name, parent string, ranks []int) {
	var id lifecycle.CommID
	call := lifecycle.CallInitRank
	if parent != "" {
		id, call = j.Ranks[ranks[0]].members[parent].comm.info.ID, lifecycle.CallSplit
	}
	c := j.newComm(name, id, len(ranks))
	for i, r := range ranks {
		_, ready := j.Ranks[r].join(c, i, call)
		ready()
	}
}

// Reset ends all threads and communicators, as a restart of the programs does.
func (j *Job) Reset() {
	for _, r := range j.Ranks {
		for _, t := range r.threads {
			t.ended = true
		}
		r.threads = nil
		for _, member := range r.order {
			if !member.ended {
				member.fault = nil
				member.abort("the job restarts")
			}
		}
		r.members, r.order, r.root = map[string]*membership{}, nil, 0
	}
	j.held = nil
}

// Slots appends the in-flight table of the process to buf.
func (p *Process) Slots(buf []tape.Slot) []tape.Slot {
	for _, r := range p.Ranks {
		for _, member := range r.order {
			if member.ended {
				continue
			}
			s := member.slot
			if o := member.running(); o != nil && s.Phase != tape.PhaseQueued {
				s.Wait, s.WaitSince = o.waitsFor(), 0
				if s.Wait >= 0 {
					s.WaitSince = o.waitSince
				}
			}
			buf = append(buf, s)
		}
	}
	return buf
}

// write writes an event to the process's tape.
func (member *membership) write(ev tape.Event) {
	if o := member.rank.Process.Observe; o != nil {
		ev.Comm, ev.Generation, ev.Root, ev.Slot = member.slot.CommInfo, member.slot.Generation, member.slot.Root,
			member.slot.Index
		o(&ev)
	}
}

// life writes a record of the communicator's life.
func (member *membership) life(r tape.LifeRecord) {
	r.Time, r.State = member.rank.Process.job.now, member.slot.State
	if r.CountsMessages() {
		r.Messages = slices.DeleteFunc(slices.Clone(member.slot.Messages[:]), func(m tape.PeerMessages) bool {
			return m.Sent+m.Received == 0
		})
	}
	member.write(tape.Event{IsLife: true, Life: r})
}

// begin writes the start of an act. end writes its end, with its error if it failed.
func (member *membership) begin(act tape.Act, call lifecycle.Call, seq int) (end func(*Fault, ...lifecycle.CommID)) {
	r := tape.LifeRecord{
		Act: act, Call: call, Stage: tape.StageStart, Seq: uint64(seq), Start: member.rank.Process.job.now, Peer: -1,
	}
	if !member.rank.Process.closes {
		r.Site = lifecycle.Site{Func: "main.train", File: "train.go", Line: 40 + int(act)}
	}
	member.life(r)
	return func(fault *Fault, made ...lifecycle.CommID) {
		r.Stage = tape.StageEnd
		for _, id := range made {
			r.Child = id
		}
		if fault != nil {
			r.Code, r.Peer, r.Text = fault.Code, int32(fault.Peer), fault.Text
		}
		member.life(r)
	}
}

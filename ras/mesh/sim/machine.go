package sim

import (
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Machine is a host with processes.
type Machine struct {
	network   *Network
	id        uint64 // from 1 on
	name      string
	addr      netip.Addr
	boot      process.BootID
	mu        sync.Mutex
	processes []*Process // number 1 first
}

// machine makes the i-th machine of the network, from 1 on.
func (n *Network) machine(i int) *Machine {
	m := &Machine{
		network: n, id: uint64(i), name: fmt.Sprintf("host%d", i),
		addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
	}
	binary.BigEndian.PutUint64(m.boot[:], uint64(i))
	return m
}

// Process is one process of a machine, and its member's mesh.Host. While it is stopped, its calls to the network and
// the kernel wait.
type Process struct {
	machine *Machine
	member  mesh.Member
	id      uint64            // in the network
	sent    map[*Process]sent // the network's mutex guards it

	mu       sync.Mutex
	dead     bool
	stopped  chan struct{} // closed when it runs again; nil while it runs
	watchers []*func(process.Exit)
}

// Start starts a process of that rank, -1 if it has none, in a job of size ranks.
func (m *Machine) Start(rank, size int) *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid := len(m.processes) + 1
	p := &Process{machine: m, id: m.id<<processBits | uint64(pid), sent: make(map[*Process]sent)}
	p.member = mesh.Member{
		Name: fmt.Sprintf("%s-%d", m.name, pid), Host: m.name, Rank: rank, JobSize: size,
		ID: process.ID{PID: pid, StartTicks: uint64(pid), PIDSpace: 1, BootID: m.boot},
	}
	m.processes = append(m.processes, p)
	return p
}

// Rand is the process's source of randomness, for mesh.Config.Rand. It follows from the network's seed.
func (p *Process) Rand() mathrand.Source {
	n := p.machine.network
	return &processSource{seed: n.seed, id: p.id<<idBits | streamProcess, began: n.began}
}

// Member is the process as a member: for mesh.Config.Self.
func (p *Process) Member() mesh.Member { return p.member }

// Kill ends the process. Its mesh must be closed all the same; what it sends then is dropped.
func (p *Process) Kill(exit process.Exit) {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	watchers := p.watchers
	p.watchers = nil
	p.mu.Unlock()
	p.Continue()
	for _, ended := range watchers {
		(*ended)(exit)
	}
}

// Stop stops the process, as SIGSTOP does, and Continue lets it run again.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == nil && !p.dead {
		p.stopped = make(chan struct{})
	}
}

// Continue lets a stopped process run again.
func (p *Process) Continue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped != nil {
		close(p.stopped)
		p.stopped = nil
	}
}

// Gate waits while the process is stopped. Code that runs in the process besides its mesh calls it before it acts.
func (p *Process) Gate() {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// Ended tells whether the process was killed.
func (p *Process) Ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// other is a process of the machine that has not ended. It is returned locked.
func (p *Process) other(pid int) (*Process, error) {
	p.Gate()
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	o := p.machine.processes[pid-1]
	if o.mu.Lock(); o.dead {
		o.mu.Unlock()
		return nil, process.ErrGone
	}
	return o, nil
}

// Watch is mesh.Host's.
func (p *Process) Watch(id process.ID, ended func(process.Exit)) (stop func(), err error) {
	o, err := p.other(id.PID)
	if err != nil {
		return nil, err
	}
	defer o.mu.Unlock()
	o.watchers = append(o.watchers, &ended)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.watchers = slices.DeleteFunc(o.watchers, func(w *func(process.Exit)) bool { return w == &ended })
	}, nil
}

// Look is mesh.Host's.
func (p *Process) Look(id process.ID) (look process.Look, err error) {
	o, err := p.other(id.PID)
	if err != nil {
		return look, err
	}
	defer o.mu.Unlock()
	if o.stopped != nil {
		look.State = process.Stopped
	}
	return look, nil
}

// Now is mesh.Host's.
func (p *Process) Now() int64 { return time.Now().UnixNano() }

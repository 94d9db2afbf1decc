package fabric

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/proxy"
	"github.com/carillon-rt/carillon/runtime/transport/shm"
	"github.com/carillon-rt/carillon/runtime/transport/tcp"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Fabric holds what the communicators of one process share to reach other ranks. It is safe for concurrent use.
type Fabric struct {
	config Config
	id     [16]byte
	host   string
	self   process.ID
	hub    *hub
	deaths *deaths

	mu       sync.Mutex
	ports    uint64        // number of Ports prepared
	listener *tcp.Listener // nil until the first Port
	proxy    *proxy.Proxy  // nil until the first Port
}

// New makes a Fabric. It opens nothing yet.
func New(config Config) (*Fabric, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Log = cmp.Or(config.Log, slog.Default())
	config.Keepalive = cmp.Or(config.Keepalive, DefaultKeepalive)
	self := process.Self()
	config.HostID = cmp.Or(config.HostID, self.BootID.String())
	host, err := os.Hostname()
	if err != nil {
		host = "?" // it is only for humans
	}
	f := &Fabric{
		config: config, host: host[:min(len(host), maxHostName)], self: self,
		hub: &hub{comms: make(map[lifecycle.CommID]*meeting)}, deaths: newDeaths(),
	}
	_, _ = rand.Read(f.id[:]) // never fails
	return f, nil
}

// Prepare makes what one rank needs before it knows the others, in a communicator of at most maxSize ranks: an inbox in
// shared memory and a gate at the TCP listener, unless they are switched off. secret is the same on all ranks of the
// communicator. Connect frees the inbox and the gate if it needs neither. The Port must be connected or closed.
//
// local says that all ranks belong to this Fabric. Prepare then makes no system call, and a card of another Fabric is
// rejected, unless DisableP2P keeps the ranks apart.
func (f *Fabric) Prepare(id lifecycle.CommID, secret []byte, maxSize int, local bool) (*Port, error) {
	p := &Port{f: f, id: id, card: card{
		comm: id, fabric: f.id, hostID: f.config.HostID, host: f.host, process: f.self, wire: f.config.Wire,
	}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports++
	binary.LittleEndian.PutUint64(p.card.gate[:], f.ports) // replaced if there is a gate
	if (!local || f.config.DisableP2P) && maxSize > 1 {
		if err := f.listen(); err != nil {
			return nil, err
		}
		if !f.config.DisableSHM {
			// A host without free shared memory still has TCP.
			if inbox, err := shm.Create(id, maxSize); err == nil {
				p.inbox, p.card.inbox = inbox, inbox.Location()
			}
		}
		p.gate = f.listener.Gate(id, secret)
		p.card.tcp, p.card.gate = f.listener.Door().Addr(), p.gate.ID()
		p.endpoint = f.proxy.Prepare(id)
		p.card.proxy = p.endpoint.Card()
		p.card.pxn = !f.config.DisablePXN
	}
	f.hub.expect(p.id)
	return p, nil
}

// Door returns the port of this process at which ranks of other processes reach it; others may use it until Close. The
// first use opens it.
func (f *Fabric) Door() (*door.Door, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.listen(); err != nil {
		return nil, err
	}
	return f.listener.Door(), nil
}

// listen opens the listener, unless it is already open. f.mu is held.
func (f *Fabric) listen() error {
	if f.listener != nil {
		return nil
	}
	addr, err := f.config.Address()
	if err == nil {
		f.listener, err = tcp.Listen(addr, f.config.Wire, f.config.Keepalive, f.config.Log)
	}
	if err == nil {
		f.proxy = proxy.New(f.config.Log, !f.config.DisableSHM && !f.config.DisablePXN)
	}
	if err != nil {
		return &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "open the port for peers", Err: err}
	}
	return nil
}

// ProxyStats counts what the process's proxy does.
type ProxyStats = proxy.Stats

// ProxyStats returns the current counts.
func (f *Fabric) ProxyStats() ProxyStats {
	f.mu.Lock()
	p := f.proxy
	f.mu.Unlock()
	if p == nil {
		return ProxyStats{}
	}
	return p.Stats()
}

// closeTime is how long Close waits for other ranks of the node that still send through this process.
const closeTime = 2 * time.Second

// Close waits for everything that the Fabric runs: up to two seconds for other ranks of the node that still send
// through this process, and as long for data that TCP peers have not read yet. All its Ports and Links must be closed
// before, and it must not be used afterwards.
func (f *Fabric) Close() {
	f.mu.Lock()
	l, p := f.listener, f.proxy
	f.mu.Unlock()
	if l != nil {
		p.Close(closeTime)
		l.Close()
	}
	f.deaths.close()
}

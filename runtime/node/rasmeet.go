package node

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// meet announces the mesh to the job's other processes, and joins them.
func (r *JobRAS) meet(m *mesh.Mesh) {
	self := m.Self()
	dir := filepath.Dir(r.own.tape.Path())
	remove, err := health.WriteBeside(filepath.Join(dir, self.Name), seedSuffix, self.Addr.String())
	if err != nil {
		r.settings.Log.Warn("the job's other processes on this host don't learn where this one listens", "error", err)
	} else {
		r.unseed = remove
	}
	r.join(append(readSeeds(dir, self.Name), r.settings.RAS.Seeds...))
}

// seedSuffix ends the names of the files beside the tapes by which the processes of one host find each other: each file
// has an address.
const seedSuffix = ".ras"

// readSeeds lists where the job's other processes on this host listen. It removes files of processes that have ended.
func readSeeds(dir, own string) []netip.AddrPort {
	host, _ := os.Hostname()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var seeds []netip.AddrPort
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), seedSuffix)
		if !ok || name == own || strings.HasPrefix(name, ".") || !entry.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		text, _ := os.ReadFile(path)
		seed, err := netip.ParseAddrPort(strings.TrimSpace(string(text)))
		number, here := strings.CutPrefix(name, host+"-")
		pid, notPID := strconv.Atoi(number)
		switch {
		case err != nil:
		case here && notPID == nil && !process.Running(pid):
			_ = os.Remove(path)
		default:
			seeds = append(seeds, seed)
		}
	}
	return seeds
}

// join meets the processes that listen at seeds, in the background.
func (r *JobRAS) join(seeds []netip.AddrPort) {
	m := r.mesh.Load()
	if len(seeds) == 0 {
		return
	}
	r.running.also(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		if _, err := m.Join(ctx, seeds...); err != nil && ctx.Err() == nil {
			r.settings.Log.Debug("none of the job's processes answers", "seeds", seeds, "error", err)
		}
	})
}

// reachable is the URL of this process's health endpoint for other hosts; empty if the endpoint listens on loopback, or
// if the mesh does, as all others are then on this host. If the endpoint listens on all addresses, the URL's host is
// the mesh's address, or with TLS this host's name, which its certificate has.
func (r *JobRAS) reachable(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err == nil && addr.IsUnspecified() {
		if addr = r.config.Advertise; !addr.IsValid() {
			addr = r.config.Bind.Addr()
		}
		host := addr.String()
		if u.Scheme == "https" {
			host = r.self.Host
		}
		u.Host = net.JoinHostPort(host, u.Port())
	}
	if err != nil || !addr.IsValid() || addr.IsLoopback() {
		return ""
	}
	if u.Path = ""; len(u.String()) > mesh.MaxHealth {
		return ""
	}
	return u.String()
}

// Contact is the address at which other processes of the job reach this one's mesh; empty if it has none.
func (r *JobRAS) Contact() string {
	if r == nil {
		return ""
	}
	if m := r.mesh.Load(); m != nil {
		return m.Self().Addr.String()
	}
	return ""
}

// Met takes contacts of other processes, when a communicator begins. They are joined in the background.
func (r *JobRAS) Met(contacts []string) {
	if r == nil || r.mesh.Load() == nil {
		return
	}
	r.pending.add(contacts)
	r.running.also(func(ctx context.Context) {
		known := r.known()
		for addr, ok := r.pending.next(); ok; addr, ok = r.pending.next() {
			if known[addr] || ctx.Err() != nil {
				continue
			}
			joining, cancel := context.WithTimeout(ctx, pushTimeout)
			_, _ = r.mesh.Load().Join(joining, addr) // if it doesn't answer, it has ended, or others introduce it
			cancel()
			known = r.known() // the process that was met has introduced those that it knows
		}
	})
}

// known are the addresses of the processes that the mesh knows.
func (r *JobRAS) known() map[netip.AddrPort]bool {
	members := r.mesh.Load().Members()
	known := make(map[netip.AddrPort]bool, len(members))
	for i := range members {
		known[members[i].Member.Addr] = true
	}
	return known
}

// pendingContacts holds contacts of processes to join, each once, however many communicators name it. All are joined,
// as they may belong to several groups that don't know each other yet, and in random order, so that a job's processes
// don't all join the same one first. The zero value has none.
type pendingContacts struct {
	addrs sync.Map // of netip.AddrPort
}

// add adds contacts, except invalid addresses.
func (u *pendingContacts) add(contacts []string) {
	for _, c := range contacts {
		if addr, err := netip.ParseAddrPort(c); err == nil {
			u.addrs.Store(addr, nil)
		}
	}
}

// next removes and returns a contact; false if there is none.
func (u *pendingContacts) next() (addr netip.AddrPort, ok bool) {
	u.addrs.Range(func(key, _ any) bool {
		addr = key.(netip.AddrPort)
		_, ok = u.addrs.LoadAndDelete(key)
		return !ok
	})
	return addr, ok
}

package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
)

// The agent of a job listens at the first of these ports that is free, so that agents find each other by their
// machines' names. The ports are below Linux's ephemeral ports and follow the port of NCCL's own RAS, 28028. Each job
// of several machines takes one.
const (
	agentPort  = 28029
	agentPorts = 8
)

// An agent looks for agents on unmet machines at intervals that double from seekFirst to seekMost.
const (
	seekFirst = time.Second
	seekMost  = 10 * time.Second
	seekTime  = 5 * time.Second // the limit of one attempt
)

// meeting is how an agent meets the agents of a job's other machines; the zero value if it meets none.
type meeting struct {
	mesh     mesh.Config
	machines []string
}

// errNoSecret says why agents of several machines don't meet.
var errNoSecret = errors.New("agents of several machines meet only with a secret: set CARILLON_JOB_SECRET_FILE, or " +
	"CARILLON_JOB_SECRET, for all of them (openssl rand -hex 32 makes one)")

// meetingOf says where and how the agent self meets the agents of the job's other machines, from RAS.Join and from what
// the launcher told one of the job's ranks, the process pid. Agents of one job derive the same mesh: from the secret,
// the launcher's name for the job, and the port at which its ranks meet.
func (s *settings) meetingOf(pid int, name string, self mesh.Member) (at meeting, err error) {
	w := launched(pid)
	if at.machines = s.RAS.Join; len(at.machines) == 0 {
		if w.Size <= 1 || w.LocalSize == w.Size || w.Address == "" {
			return meeting{}, nil // this machine has the whole job, or it is unknown where others are
		}
		host, _, err := net.SplitHostPort(w.Address)
		if err != nil {
			return meeting{}, err
		}
		at.machines = []string{host}
	}
	with := *s
	with.World = w
	if len(s.World.Secret) > 0 {
		with.World.Secret = s.World.Secret
	}
	if w.Launcher == launch.None {
		with.World.Job = name
	}
	loopback := w.OneHost() && w.Launcher != launch.None
	if !loopback && len(with.World.Secret) == 0 {
		return meeting{}, errNoSecret
	}
	if w.Launcher == launch.None { // only RAS.Join says where other ranks are
		with.World.Size, with.World.LocalSize, with.World.Address = 2, 0, "agents:0"
	}
	if at.mesh, err = with.meshConfig(self); err != nil {
		return meeting{}, err
	}
	_, port, _ := net.SplitHostPort(with.World.Address)
	seed := []byte("carillon agents")
	for _, part := range [][]byte{with.World.Secret, []byte(with.World.Job), []byte(port)} {
		seed = wire.AppendBytes(seed, part)
	}
	secret := sha256.Sum256(seed)
	at.mesh.Secret, at.mesh.Job = secret[:], "agents of "+with.World.Job
	return at, nil
}

// launched is the world in which a launcher started a process, without the variables that change at a restart or come
// from carillon attach; a world of one rank if that is unknown.
func launched(pid int) launch.World {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil { // another user's
		text = nil
	}
	env := map[string]string{}
	for kv := range strings.SplitSeq(string(text), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	for _, name := range []string{
		"CARILLON_JOB", "TORCHELASTIC_RESTART_COUNT",
		"CARILLON_JOB_SECRET_FILE", // the process may name a file that it must not read
	} {
		delete(env, name)
	}
	w, err := launch.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		return launch.World{Size: 1, LocalSize: 1, Launcher: launch.None}
	}
	return w
}

// splitMachine reads host or host:port; without one, the port is 0.
func splitMachine(text string) (host string, port uint16, err error) {
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return ip.String(), 0, nil
	}
	if host = text; strings.Contains(text, ":") {
		var digits string
		if host, digits, err = net.SplitHostPort(text); err != nil {
			return "", 0, err
		}
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 {
			return "", 0, fmt.Errorf("the port is %q, want a number", digits)
		}
		port = uint16(n)
	}
	if host == "" || strings.ContainsAny(host, " /") {
		return "", 0, fmt.Errorf("the host is %q", host)
	}
	return host, port, nil
}

// meetAgents makes the agent meet the agents of the job's other machines, as the latest process says: a launcher that
// restarts ranks may let them meet elsewhere, and an earlier process may have been no rank.
func (r *JobRAS) meetAgents(at *meeting) error {
	if r == nil || len(at.machines) == 0 ||
		bytes.Equal(at.mesh.Secret, r.met.mesh.Secret) && slices.Equal(at.machines, r.met.machines) {
		return nil
	}
	at.mesh.Handler, at.mesh.LocalNote, at.mesh.OnEvent = r.agent.Handle, r.agent.LocalNote, r.member
	m, err := r.listen(at.mesh)
	if err != nil {
		return fmt.Errorf("%w (CARILLON_RAS_ADDR chooses another address)", err)
	}
	r.met = *at
	if old := r.mesh.Swap(m); old != nil {
		r.running.also(func(context.Context) { _ = old.Close() }) // the other agents have left it, or will
	}
	r.agent.Meet(m)
	r.running.also(func(ctx context.Context) { r.seek(ctx, m, at.machines) })
	return nil
}

// listen starts a mesh at the first free one of the agents' ports, on all addresses if agents connect from other
// machines. CARILLON_RAS_ADDR overrides both.
func (r *JobRAS) listen(c mesh.Config) (m *mesh.Mesh, err error) {
	if r.settings.RAS.Addr != "" {
		return mesh.Start(c)
	}
	at := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	switch {
	case c.Advertise.Is4():
		at = netip.IPv4Unspecified()
	case c.Advertise.IsValid():
		at = netip.IPv6Unspecified()
	}
	for port := range uint16(agentPorts) {
		c.Bind = netip.AddrPortFrom(at, agentPort+port)
		if m, err = mesh.Start(c); err == nil {
			return m, nil
		}
	}
	return nil, err
}

// seek looks for agents on the job's other machines, as long as m is the mesh: an agent may start, and restart, at any
// time.
func (r *JobRAS) seek(ctx context.Context, m *mesh.Mesh, machines []string) {
	for wait := seekFirst; r.mesh.Load() == m; wait = min(2*wait, seekMost) {
		attempt, cancel := context.WithTimeout(ctx, seekTime)
		if addrs := r.unmet(attempt, m, machines); len(addrs) > 0 {
			if _, err := m.Join(attempt, addrs...); err != nil && ctx.Err() == nil {
				r.settings.Log.Debug("no agent answers", "machines", machines, "error", err)
			}
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// unmet returns the addresses at which agents may listen on those machines that have no member in m yet.
func (r *JobRAS) unmet(ctx context.Context, m *mesh.Mesh, machines []string) (addrs []netip.AddrPort) {
	met := func(ip netip.Addr, port uint16) bool {
		return slices.ContainsFunc(m.Members(), func(s mesh.Status) bool {
			at := s.Member.Addr
			return s.Member.Name != r.self.Name && s.State == mesh.Alive && at.Addr() == ip &&
				(port == 0 || at.Port() == port)
		})
	}
	for _, machine := range machines {
		host, port, err := splitMachine(machine)
		if err != nil {
			continue // Validate has reported it
		}
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			r.settings.Log.Debug("a machine's name can't be resolved", "name", host, "error", err)
		}
		first, last := port, port
		if port == 0 {
			first, last = agentPort, agentPort+agentPorts-1
		}
		for _, ip := range ips {
			if ip = ip.Unmap(); met(ip, port) {
				continue
			}
			for at := first; at <= last; at++ {
				addrs = append(addrs, netip.AddrPortFrom(ip, at))
			}
		}
	}
	return addrs
}

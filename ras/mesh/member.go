package mesh

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Member is one process of the job.
type Member struct {
	// Name is unique in the job: HOST-PID, or HOST-PID.BEFORE if Before is not 0. HOST is the Machine, if there is one,
	// or else the Host.
	Name string
	// Host is the host's name, of at most MaxHost bytes, as the process has it: in a container, it is the container's.
	Host string
	// Machine is the name of the host on which its Keeper runs, if that is another one; else empty.
	Machine string
	// ID names the process on its host: processes with the same BootID and PIDSpace can watch each other.
	process.ID
	// Before is how many processes of its Keeper came before it with the same PID: pids are reused, and a process in a
	// container has its pid in the container if it had ended when its Keeper found it.
	Before uint
	// Rank is its rank in the job, -1 if it has none. JobSize is how many ranks the job has, 0 if unknown.
	Rank    int
	JobSize int
	// Instance is random. It distinguishes meshes that one process starts one after the other. Start sets it.
	Instance uint64
	// Health is the URL of its health endpoint, of at most MaxHealth bytes; empty if other hosts can't reach it.
	Health string
	// Addr is its address, UDP and TCP. Start sets it.
	Addr netip.AddrPort
	// Keeper is the name of the carillon agent that answers for the process, which then is not in the mesh itself. A
	// member that is its own Keeper is such an agent, and no process of the job. Empty: the member answers for itself.
	Keeper string
}

// String is "rank 3 (host-4711)".
func (m Member) String() string {
	name := m.Name
	if m.Machine != "" {
		name = nameOf(m.Host, m.PID)
	}
	if m.Rank < 0 {
		return name
	}
	return fmt.Sprintf("rank %d (%s)", m.Rank, name)
}

// MachineName is the name of the machine that the process runs on, as far as it is known. Processes in containers of
// one machine have it in common.
func (m *Member) MachineName() string { return cmp.Or(m.Machine, m.Host) }

// After is the member as it is when n others of its Keeper with the same PID came before it.
func (m Member) After(n uint) Member {
	if m.Before = n; n > 0 {
		m.Name += "." + strconv.FormatUint(uint64(n), 10)
	}
	return m
}

// Beside is another process on the member's machine, with a pid of the member's pid namespace and a rank of the same
// job.
func (m Member) Beside(pid, rank int) Member {
	id := process.ID{PID: pid, PIDSpace: m.PIDSpace, BootID: m.BootID}
	return processMember(m.Host, id, rank, m.JobSize)
}

func (m *Member) instance() instance { return instance{m.Name, m.Instance} }

// sameHost says whether the two can see each other in /proc.
func (m *Member) sameHost(o *Member) bool {
	return m.Host == o.Host && m.BootID == o.BootID && m.PIDSpace == o.PIDSpace
}

func (m *Member) hostKey() hostKey { return hostKey{m.Host, m.BootID, m.PIDSpace} }

type hostKey struct {
	host  string
	boot  process.BootID
	space uint64
}

// byHostAndRank is the order of the ring on each host.
func byHostAndRank(a, b *Member) int {
	return cmp.Or(
		cmp.Compare(a.Host, b.Host), bytes.Compare(a.BootID[:], b.BootID[:]), cmp.Compare(a.PIDSpace, b.PIDSpace),
		cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Name, b.Name),
	)
}

func nameOf(host string, pid int) string { return host + "-" + strconv.Itoa(pid) }

const (
	// MaxHealth bounds Member.Health, so that a member's metadata stay small.
	MaxHealth   = 128
	metaVersion = 2
	// MaxHost bounds Member.Host.
	MaxHost = 64
	maxName = MaxHost + 1 + 20
)

// encodeMeta encodes what memberlist carries about a member. A later build may append fields: a reader ignores what it
// doesn't know.
//
//	version u8 | process.ID | rank v | job size uv | instance u64 | host text | health text
//	of one that Keeps: 1 u8
func encodeMeta(m *Member) []byte {
	b := m.Append([]byte{metaVersion}) // its process.ID
	b = binary.AppendVarint(b, int64(m.Rank))
	b = binary.AppendUvarint(b, uint64(m.JobSize))
	b = binary.LittleEndian.AppendUint64(b, m.Instance)
	b = wire.AppendBytes(wire.AppendBytes(b, m.Host), m.Health)
	if m.Keeps() {
		b = wire.AppendBool(b, true)
	}
	return b
}

// Keeps tells whether the member is a carillon agent: it answers for other processes, and is no process of the job.
func (m *Member) Keeps() bool { return m.Keeper != "" && m.Keeper == m.Name }

func decodeMeta(b []byte) (Member, error) {
	r := wire.NewReader(b)
	if v := r.Byte(); v != metaVersion {
		return Member{}, fmt.Errorf("mesh: metadata of version %d, want %d", v, metaVersion)
	}
	m := Member{ID: process.Read(r), Rank: r.Int(), JobSize: r.UpTo(1 << 30), Instance: r.Uint64()}
	m.Host = r.Text(MaxHost)
	m.Health = r.Text(MaxHealth)
	keeps := r.Len() > 0 && r.Bool()
	if r.Err() != nil || m.Host == "" || m.Rank < -1 || m.Rank > 1<<30 {
		return Member{}, errMessage
	}
	if m.Name = nameOf(m.Host, m.PID); keeps {
		m.Keeper = m.Name
	}
	return m, nil
}

package mesh

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Member is one process of the job.
type Member struct {
	// Name is HOST-PID, unique in the job.
	Name string
	// Host is the host's name, of at most 64 bytes.
	Host string
	// PID is the process's number on its host.
	PID int
	// BootID names the running kernel, and PIDSpace the namespace that PID is of: processes with both the same can watch
	// each other. Zero if unknown.
	BootID   [16]byte
	PIDSpace uint64
	// Rank is its rank in the job, -1 if it has none. JobSize is how many ranks the job has, 0 if unknown.
	Rank    int
	JobSize int
	// StartTicks is when the process started, in the kernel's ticks since boot: pids are used again, pairs of the two are
	// not.
	StartTicks uint64
	// Instance is random, and tells two meshes of one process, one after the other, apart. Start chooses it.
	Instance uint64
	// Health is the URL at which its health endpoint answers other hosts, of at most MaxHealth bytes; empty if it has none
	// that does.
	Health string
	// Addr is where it answers, UDP and TCP. Start sets it.
	Addr netip.AddrPort
}

// String is "rank 3 (host-4711)".
func (m Member) String() string {
	if m.Rank < 0 {
		return m.Name
	}
	return fmt.Sprintf("rank %d (%s)", m.Rank, m.Name)
}

// sameHost says whether the two can see each other in /proc.
func (m *Member) sameHost(o *Member) bool {
	return m.Host == o.Host && m.BootID == o.BootID && m.PIDSpace == o.PIDSpace
}

// hostKey is equal for members of one host.
func (m *Member) hostKey() hostKey { return hostKey{m.Host, m.BootID, m.PIDSpace} }

type hostKey struct {
	host  string
	boot  [16]byte
	space uint64
}

// byHostAndRank is the order of the ring on each host.
func byHostAndRank(a, b *Member) int {
	return cmp.Or(
		cmp.Compare(a.Host, b.Host), cmp.Compare(string(a.BootID[:]), string(b.BootID[:])), cmp.Compare(a.PIDSpace, b.PIDSpace),
		cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Name, b.Name),
	)
}

// nameOf is the name of a process.
func nameOf(host string, pid int) string { return host + "-" + strconv.Itoa(pid) }

const (
	// MaxHealth bounds Member.Health, so that what is told of a member stays small.
	MaxHealth   = 128
	metaVersion = 1
	maxHost     = 64
	maxName     = maxHost + 1 + 20
)

var errMeta = errors.New("mesh: metadata cut short")

// appendMeta encodes what memberlist carries about a member: the version, then numbers as varints, then what is of fixed
// size, then texts. A later version 1 may append fields; a reader ignores what it doesn't know.
//
//	1 version | pid uv | rank v | job size uv | start u64 | space u64 | instance u64 | boot 16 | host: len u8, bytes | health: likewise
func appendMeta(b []byte, m *Member) []byte {
	b = append(b, metaVersion)
	b = binary.AppendUvarint(b, uint64(m.PID))
	b = binary.AppendVarint(b, int64(m.Rank))
	b = binary.AppendUvarint(b, uint64(m.JobSize))
	b = binary.LittleEndian.AppendUint64(b, m.StartTicks)
	b = binary.LittleEndian.AppendUint64(b, m.PIDSpace)
	b = binary.LittleEndian.AppendUint64(b, m.Instance)
	b = append(b, m.BootID[:]...)
	return appendText(appendText(b, m.Host), m.Health)
}

// decodeMeta reads what appendMeta wrote.
func decodeMeta(b []byte) (Member, error) {
	r := reader{b: b}
	if v := r.u8(); v != metaVersion {
		return Member{}, fmt.Errorf("mesh: metadata of version %d, want %d", v, metaVersion)
	}
	m := Member{PID: r.count(1 << 30), Rank: r.integer(), JobSize: r.count(1 << 30)}
	m.StartTicks, m.PIDSpace, m.Instance = r.u64(), r.u64(), r.u64()
	copy(m.BootID[:], r.take(len(m.BootID)))
	m.Host = r.text(maxHost)
	m.Health = r.text(MaxHealth)
	if r.bad || m.Host == "" || m.Rank < -1 || m.Rank > 1<<30 {
		return Member{}, errMeta
	}
	m.Name = nameOf(m.Host, m.PID)
	return m, nil
}

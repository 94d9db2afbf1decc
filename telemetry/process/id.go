package process

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// ID identifies a process uniquely. IDs are compared with ==.
type ID struct {
	PID        int    // in its pid namespace
	StartTicks uint64 // when it started, in the kernel's ticks since boot; 0 if unknown
	PIDSpace   uint64 // the inode of its pid namespace; 0 if unknown
	BootID     BootID // of its machine
}

// BootID identifies one boot of a machine, and is the same in all its containers. The zero BootID is unknown.
type BootID [16]byte

// String is the id as the kernel writes it; empty if it is unknown.
func (b BootID) String() string {
	if b == (BootID{}) {
		return ""
	}
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// self is this process's ID, which never changes.
var self = sync.OnceValue(func() ID {
	id := ID{PID: os.Getpid()}
	var ns unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &ns) == nil {
		id.PIDSpace = ns.Ino
	}
	digits, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(bootID()), "-", ""))
	if err == nil && len(digits) == len(id.BootID) {
		id.BootID = BootID(digits)
	}
	if s, err := this.stat(id.PID); err == nil {
		id.StartTicks = s.start
	}
	if id.BootID == (BootID{}) || id.StartTicks == 0 {
		_, _ = rand.Read(id.BootID[:]) // never fails
	}
	return id
})

// Self is this process's ID. Unknown fields are zero. If the known ones don't identify the process, as without /proc,
// the BootID is random, as if the process were alone on its machine.
func Self() ID { return self() }

// Visible tells whether /proc shows processes running, stopping and ending.
func Visible() bool {
	s, err := this.stat(os.Getpid())
	return err == nil && s.start != 0
}

// Here returns the ID with the pid in this pid namespace, if the process runs in a namespace below that this process
// may look at, such as a container's; otherwise the ID as it is.
func (id ID) Here() ID {
	if me := Self(); id.PIDSpace != 0 && id.PIDSpace != me.PIDSpace && id.BootID == me.BootID {
		if pid, _ := this.find(id); pid != 0 {
			id.PID, id.PIDSpace = pid, me.PIDSpace
		}
	}
	return id
}

// Append appends the ID to a message; Read reads it.
func (id ID) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(id.PID))
	b = binary.LittleEndian.AppendUint64(b, id.StartTicks)
	b = binary.LittleEndian.AppendUint64(b, id.PIDSpace)
	return append(b, id.BootID[:]...)
}

// Read reads what Append wrote.
func Read(r *wire.Reader) (id ID) {
	id.PID, id.StartTicks, id.PIDSpace = r.UpTo(math.MaxInt32), r.Uint64(), r.Uint64()
	r.Fill(id.BootID[:])
	return id
}

// Liveness tells whether a process lives.
type Liveness uint8

// The values of Liveness.
const (
	Unknown Liveness = iota // it is in a pid namespace that can't be seen from here, or on another machine
	Alive
	Dead
)

// String is "alive", "dead" or "unknown".
func (l Liveness) String() string { return [...]string{"unknown", "alive", "dead"}[l] }

// firstSpace is a machine's initial pid namespace (PROC_PID_INIT_INO of include/linux/proc_ns.h), in which all
// processes are visible.
const firstSpace = 0xEFFFFFFC

// Liveness looks the process up. A zombie is dead.
func (id ID) Liveness() Liveness {
	me := Self()
	if id.PIDSpace == 0 {
		id.PIDSpace = me.PIDSpace
	}
	if id.BootID != me.BootID || id.BootID == (BootID{}) {
		return Unknown
	}
	if id.PIDSpace != me.PIDSpace { // as in a container
		switch pid, all := this.find(id); {
		case pid != 0:
			id.PID = pid
		case all && me.PIDSpace == firstSpace:
			return Dead
		default:
			return Unknown
		}
	}
	if this.ended(id) {
		return Dead
	}
	return Alive
}

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

// ID names a process so that no other can be taken for it. IDs are compared with ==.
type ID struct {
	// PID is its number in its pid namespace.
	PID int
	// StartTicks is when it started, in the kernel's ticks since boot; 0 if unknown.
	StartTicks uint64
	// PIDSpace is the inode of its pid namespace; 0 if unknown.
	PIDSpace uint64
	// BootID is that of the kernel on which it runs.
	BootID BootID
}

// BootID names one boot of a machine. All containers of the machine share it. The zero BootID means that it is unknown.
type BootID [16]byte

// String is the id as the kernel writes it; empty if it is unknown.
func (b BootID) String() string {
	if b == (BootID{}) {
		return ""
	}
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// self is this process, for which nothing of this changes.
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

// Self is this process. What the kernel does not tell is zero; but where it doesn't tell enough for the process to be
// told from all others, as /proc is missing, the BootID is one that no other process has: it is as if it were alone on
// its machine.
func Self() ID { return self() }

// Visible tells whether the kernel shows processes to each other: whether they can see each other run, stop and end.
func Visible() bool {
	s, err := this.stat(os.Getpid())
	return err == nil && s.start != 0
}

// Here is the process by its number in this pid namespace, if it runs in one below, as in a container, and this process
// may look at its namespaces; else the ID as it is.
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

// Liveness is what can be known about whether a process lives.
type Liveness uint8

// What can be known.
const (
	Unknown Liveness = iota // it is in a pid namespace that can't be seen from here, or on another machine
	Alive
	Dead
)

// String is "alive", "dead" or "unknown".
func (l Liveness) String() string { return [...]string{"unknown", "alive", "dead"}[l] }

// firstSpace is the pid namespace of a machine's first process (PROC_PID_INIT_INO of include/linux/proc_ns.h). All
// others are below it, so that a process in it sees all processes.
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

package shm

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// seals keep an inbox from changing its size, for ever.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// memfdName is how inboxes are called in /proc.
const memfdName = "carillon-inbox"

// Location is what peers must know to open an inbox. The zero Location is no inbox.
type Location struct {
	FD    int // in its owner's process
	Slots int
	Token [16]byte
}

// mapping is memory mapped from a memfd. It is unmapped when nothing refers to it any more, not by Close: a rank that
// is closed from outside may still be looking at it.
type mapping struct{ mem []byte }

func mapFD(fd int, size int64) (*mapping, error) {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	m := &mapping{mem: mem}
	runtime.AddCleanup(m, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return m, nil
}

// Inbox is where one rank of a communicator receives. It belongs to the goroutine that connects the rank; afterwards
// its connections are used.
type Inbox struct {
	id  lifecycle.CommID
	loc Location
	m   *mapping // nil until Map

	mu   sync.Mutex
	fd   int // -1 once closed
	used []slot
}

// Create makes an inbox for a communicator of at most the given number of ranks. It takes a file descriptor until Seal
// or Close, and one page of memory.
func Create(id lifecycle.CommID, slots int) (*Inbox, error) {
	in := &Inbox{id: id, loc: Location{Slots: slots}}
	_, _ = rand.Read(in.loc.Token[:]) // never fails
	fd, err := unix.MemfdCreate(memfdName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create shared memory: %w", err)
	}
	if err := prepare(fd, header(id, slots, in.loc.Token), inboxSize(slots)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	in.fd, in.loc.FD = fd, fd
	return in, nil
}

func prepare(fd int, header []byte, size int64) error {
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("give shared memory %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal shared memory: %w", err)
	}
	if _, err := unix.Pwrite(fd, header, 0); err != nil {
		return fmt.Errorf("write to shared memory: %w", err)
	}
	return nil
}

// Location is where the inbox is.
func (in *Inbox) Location() Location { return in.loc }

// Map makes the inbox usable by its owner.
func (in *Inbox) Map() error {
	m, err := mapFD(in.fd, inboxSize(in.loc.Slots))
	if err != nil {
		return err
	}
	in.m = m
	return nil
}

// Bell is the doorbell word that peers ring. It stays mapped as long as the Inbox is referred to.
func (in *Inbox) Bell() *atomic.Uint32 { return word32(in.m.mem, headerBell) }

// Alerts counts the notices that arrived from peers.
func (in *Inbox) Alerts() uint32 { return word32(in.m.mem, headerAlerts).Load() }

// Seal closes the file, so that nobody can open the inbox any more; those who have it keep it.
func (in *Inbox) Seal() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fd >= 0 {
		_ = unix.Close(in.fd)
		in.fd = -1
	}
}

// Close closes the file and gives the memory of all rings back. The rank reads no more.
func (in *Inbox) Close() {
	in.Seal()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.used {
		_ = unix.Madvise(s.ring, unix.MADV_REMOVE)
	}
	in.used = nil
}

// Refuse tells rank peer, if it can open this inbox, that this rank could not open the peer's.
func (in *Inbox) Refuse(peer int) {
	slotOf(in.m.mem, in.loc.Slots, peer).verdict.Store(verdictRefused)
}

// Open connects the owner, rank self, with rank peer of the process pid, whose inbox is at loc. Losses are told to
// bell. The connection may be used when Agreed says that the peer could open this inbox, too. On an error, the caller
// calls Refuse.
func (in *Inbox) Open(self, peer, pid int, loc Location, bell *transport.Waiter) (*Conn, error) {
	if loc.Slots != in.loc.Slots {
		return nil, fmt.Errorf("inbox of rank %d has %d slots, ours has %d", peer, loc.Slots, in.loc.Slots)
	}
	m, err := openInbox(pid, loc, header(in.id, loc.Slots, loc.Token))
	if err != nil {
		return nil, fmt.Errorf("open inbox of rank %d: %w", peer, err)
	}
	c := &Conn{
		out:      slotOf(m.mem, in.loc.Slots, self),
		peerBell: word32(m.mem, headerBell),
		in:       slotOf(in.m.mem, in.loc.Slots, peer),
		bell:     bell,
		rank:     self,
		peer:     peer,
		inbox:    in,
		theirs:   m,
	}
	in.mu.Lock()
	in.used = append(in.used, c.in)
	in.mu.Unlock()
	c.in.verdict.Store(verdictOpened)
	transport.RingWord(c.peerBell)
	return c, nil
}

func openInbox(pid int, loc Location, want []byte) (*mapping, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, loc.FD)
	// Look before opening: to open a device or a pipe would have effects.
	if target, err := os.Readlink(path); err != nil {
		return nil, err
	} else if !strings.HasPrefix(target, "/memfd:"+memfdName) {
		return nil, fmt.Errorf("%s is %s and not an inbox", path, target)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }() // the mapping stays
	if err := examine(fd, inboxSize(loc.Slots), want); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return mapFD(fd, inboxSize(loc.Slots))
}

// examine checks that fd is an inbox with the wanted header.
func examine(fd int, size int64, want []byte) error {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("read seals: %w", err)
	}
	if got&seals != seals {
		return fmt.Errorf("has seals %#x, wanted %#x", got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Size != size {
		return fmt.Errorf("has %d bytes, wanted %d", st.Size, size)
	}
	if int(st.Uid) != unix.Geteuid() {
		return fmt.Errorf("belongs to user %d, not to %d", st.Uid, unix.Geteuid())
	}
	have := make([]byte, len(want))
	if _, err := unix.Pread(fd, have, 0); err != nil {
		return fmt.Errorf("read header: %w", err)
	}
	if !bytes.Equal(have, want) {
		return errors.New("is an inbox of another communicator or rank")
	}
	return nil
}

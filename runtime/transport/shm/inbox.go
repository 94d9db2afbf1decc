package shm

import (
	"crypto/rand"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// Location is what peers must know to open an inbox. The zero Location means no inbox.
type Location struct {
	FD    int // descriptor in the owner's process
	Slots int
	Token [16]byte
}

// Memory is a mapped in-memory file. It is unmapped when nothing refers to it any more, not by a Close: a rank that is
// closed from outside may still be reading it.
type Memory struct{ mem []byte }

// Bytes returns the mapped bytes. Whoever keeps them must also keep the Memory.
func (m *Memory) Bytes() []byte { return m.mem }

// MapMemory maps a file made by CreateMemory.
func MapMemory(fd int, size int64) (*Memory, error) {
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	m := &Memory{mem: mem}
	runtime.AddCleanup(m, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return m, nil
}

// Inbox is where one rank of a communicator receives. Only the goroutine that connects the rank uses it; after that its
// connections are used.
type Inbox struct {
	id  lifecycle.CommID
	loc Location
	m   *Memory // nil until Map

	mu   sync.Mutex
	fd   int // -1 once closed
	used []slot
}

// Create makes an inbox for a communicator of at most the given number of ranks. It takes a file descriptor until Seal
// or Close, and one page of memory. It fails where the kernel has no sealed shared memory; only Linux has it.
func Create(id lifecycle.CommID, slots int) (*Inbox, error) {
	in := &Inbox{id: id, loc: Location{Slots: slots}}
	_, _ = rand.Read(in.loc.Token[:]) // never fails
	fd, err := CreateMemory(header(id, slots, in.loc.Token), inboxSize(slots))
	if err != nil {
		return nil, err
	}
	in.fd, in.loc.FD = fd, fd
	return in, nil
}

// Location returns the location of the inbox.
func (in *Inbox) Location() Location { return in.loc }

// Map makes the inbox usable by its owner.
func (in *Inbox) Map() error {
	m, err := MapMemory(in.fd, inboxSize(in.loc.Slots))
	if err != nil {
		return err
	}
	in.m = m
	return nil
}

// Bell returns the doorbell word that peers ring. It stays mapped as long as the Inbox is referred to.
func (in *Inbox) Bell() *atomic.Uint32 { return word32(in.m.mem, headerBell) }

// Attends returns a word that peers read; it is 1 while the owner's Waiter attends to its process's proxy. It stays
// mapped as long as the Inbox is referred to.
func (in *Inbox) Attends() *atomic.Uint32 { return word32(in.m.mem, headerAttend) }

// Alerts counts the notices that arrived from peers.
func (in *Inbox) Alerts() uint32 { return word32(in.m.mem, headerAlerts).Load() }

// Seal closes the file, so that no peer can open the inbox any more; peers that have opened it keep it.
func (in *Inbox) Seal() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fd >= 0 {
		_ = unix.Close(in.fd)
		in.fd = -1
	}
}

// GiveUp tells all peers that have opened the inbox, or will open it before Close, that its owner won't connect. It
// does nothing after Seal: by then there are connections that can tell.
func (in *Inbox) GiveUp(n transport.Notice) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fd < 0 {
		return
	}
	_, _ = unix.Pwrite(in.fd, transport.AppendNotice(nil, n), headerNotice)
	_, _ = unix.Pwrite(in.fd, []byte{1}, headerGaveUp) // can only fail for lack of memory
}

// Close closes the file and frees the memory of all rings. The rank must not read any more.
func (in *Inbox) Close() {
	in.Seal()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.used {
		free(s.ring)
	}
	in.used = nil
}

// Refuse tells rank peer, if it can open this inbox, that this rank could not open peer's inbox.
func (in *Inbox) Refuse(peer int) {
	slotOf(in.m.mem, in.loc.Slots, peer).verdict.Store(verdictRefused)
}

// Open connects the owner, rank self, to rank peer of the process pid, whose inbox is at loc. Losses are reported to
// bell. The connection may be used once Agreed reports that the peer could open this inbox, too. On an error, the
// caller must call Refuse.
func (in *Inbox) Open(self, peer, pid int, loc Location, bell *transport.Waiter) (*Conn, error) {
	if loc.Slots != in.loc.Slots {
		return nil, fmt.Errorf("inbox of rank %d has %d slots, ours has %d", peer, loc.Slots, in.loc.Slots)
	}
	m, err := OpenMemory(pid, loc.FD, header(in.id, loc.Slots, loc.Token), inboxSize(loc.Slots))
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

// Share tells all peers, before this rank confirms, that it reaches all of them through shared memory.
func (in *Inbox) Share() { word32(in.m.mem, headerShared).Store(1) }

// Shares reports whether the peer, which has confirmed, reaches all others through shared memory.
func (c *Conn) Shares() bool { return word32(c.theirs.mem, headerShared).Load() == 1 }

// Board makes the Board of the inbox's owner, in a communicator whose ranks all Share. conns are the connections to all
// other ranks.
func (in *Inbox) Board(rank int, conns []*Conn) *transport.Board {
	memory := make([][]byte, len(conns)+1)
	bells := make([]*atomic.Uint32, len(conns))
	memory[rank] = boardOf(in.m.mem)
	for i, c := range conns {
		memory[c.peer], bells[i] = boardOf(c.theirs.mem), c.peerBell
	}
	return transport.NewBoard(rank, memory, bells, conns)
}

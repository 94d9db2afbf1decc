package shm

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// The conformance suite runs over this transport in package fabric's tests. These tests cover what is particular to it.

var comm = lifecycle.CommID{7}

func create(t *testing.T, slots int) *Inbox {
	t.Helper()
	in, err := Create(comm, slots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	if err := in.Map(); err != nil {
		t.Fatal(err)
	}
	return in
}

// pair connects rank 0 with rank 1 through two inboxes of this process.
func pair(t *testing.T) (conns [2]*Conn, waiters [2]*transport.Waiter) {
	t.Helper()
	inboxes := [2]*Inbox{create(t, 2), create(t, 2)}
	for rank, in := range inboxes {
		waiters[rank] = transport.NewSharedWaiter(2, in.Bell(), transport.Patience{})
		c, err := in.Open(rank, 1-rank, os.Getpid(), inboxes[1-rank].Location(), waiters[rank])
		if err != nil {
			t.Fatal(err)
		}
		conns[rank] = c
	}
	return conns, waiters
}

func TestBothSidesAgree(t *testing.T) {
	a, b := create(t, 2), create(t, 2)
	w := transport.NewSharedWaiter(2, a.Bell(), transport.Patience{})
	c, err := a.Open(0, 1, os.Getpid(), b.Location(), w)
	if err != nil {
		t.Fatal(err)
	}
	if _, known := c.Agreed(); known {
		t.Error("agreed before the peer has said anything")
	}
	b.Refuse(0)
	if opened, known := c.Agreed(); opened || !known {
		t.Error("the peer's refusal is not known")
	}
}

func TestOpenRefuses(t *testing.T) {
	mine, theirs := create(t, 2), create(t, 2)
	other, err := Create(lifecycle.CommID{8}, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	pipe, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer write.Close()
	unsealed, err := unix.MemfdCreate(memfdName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unsealed)
	short, err := unix.MemfdCreate(memfdName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(short)
	if err := prepare(short, header(comm, 2, theirs.loc.Token), inboxSize(2)-1); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Location)
		says   string
	}{
		"another token":         {func(l *Location) { l.Token[3]++ }, "another communicator or rank"},
		"another communicator":  {func(l *Location) { *l = other.Location() }, "another communicator or rank"},
		"another size":          {func(l *Location) { l.Slots = 3 }, "has 3 slots, ours has 2"},
		"a closed number":       {func(l *Location) { l.FD = 1 << 20 }, "no such file"},
		"a pipe":                {func(l *Location) { l.FD = int(pipe.Fd()) }, "not shared memory of Carillon's"},
		"memory without seals":  {func(l *Location) { l.FD = unsealed }, "has seals"},
		"memory that is short":  {func(l *Location) { l.FD = short }, "bytes, wanted"},
		"another process's":     {nil, "no such file"},
		"memory sealed and ok?": {func(*Location) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			loc, pid := theirs.Location(), os.Getpid()
			if c.change == nil {
				pid = 1 << 30
			} else {
				c.change(&loc)
			}
			_, err := mine.Open(0, 1, pid, loc, nil)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want something with %q", err, c.says)
			}
		})
	}
}

// A peer that writes invalid values costs the connection, not the process.
func TestDamagedMemory(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*Conn)
		act    func(*Conn) error
	}{
		"tail far ahead": {
			func(c *Conn) { c.in.tail.Store(1 << 60) }, func(c *Conn) error { _, err := c.Peek(); return err },
		},
		"tail behind": {
			func(c *Conn) { c.in.tail.Store(1<<64 - 8) }, func(c *Conn) error { _, err := c.Peek(); return err },
		},
		"head far ahead": {func(c *Conn) { c.out.head.Store(1 << 40) }, func(c *Conn) error {
			for {
				if n, err := c.TrySend(make([]byte, 64<<10)); err != nil || n == 0 {
					return err
				}
			}
		}},
		"notice": {func(c *Conn) {
			for i := range c.in.notice {
				c.in.notice[i] = 0xff
			}
			c.in.status.Store(statusNotice)
		}, func(c *Conn) error { _, err := c.Peek(); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			conns, waiters := pair(t)
			c.damage(conns[0])
			var lost *lifecycle.PeerError
			if err := c.act(conns[0]); !errors.As(err, &lost) || lost.Code != lifecycle.CodeInternal || lost.Rank != 1 {
				t.Errorf("got %v", err)
			}
			if peer, err := waiters[0].FirstLost(); peer != 1 || err == nil {
				t.Errorf("lost %d: %v", peer, err)
			}
			if _, err := conns[0].TrySend(make([]byte, 8)); err == nil {
				t.Error("the connection still sends")
			}
		})
	}
}

// The memory stays when its owner has closed it and only the peer's end still refers to it.
func TestMemoryOutlivesItsOwner(t *testing.T) {
	conns, _ := pair(t)
	want := bytes.Repeat([]byte("carillon"), 1000)
	if n, err := conns[0].TrySend(want); n != len(want) || err != nil {
		t.Fatal(n, err)
	}
	_ = conns[0].Close()
	conns[0].inbox.Close()
	reader := conns[1]
	conns[0], conns[1] = nil, nil
	for range 3 {
		runtime.GC()
	}
	got, err := reader.Peek()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	reader.Release(len(got))
	if _, err := reader.Peek(); err == nil {
		t.Error("the peer's close is not seen")
	}
	if n, err := reader.TrySend(want); n != 0 || err == nil {
		t.Errorf("sent %d bytes to a closed peer", n)
	}
}

// Close frees the memory of the rings, though the mapping stays.
func TestCloseReturnsMemory(t *testing.T) {
	conns, _ := pair(t)
	in := conns[1].inbox
	blocks := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(in.fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n, err := conns[0].TrySend(make([]byte, 256<<10)); n != 256<<10 || err != nil {
		t.Fatal(n, err)
	}
	if used := blocks(); used < 256<<10 {
		t.Fatalf("%d bytes in use, where 256 KiB were written", used)
	}
	fd, err := unix.Dup(in.fd)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	in.fd = fd // for blocks, and for the second Close at the end of the test
	if used := blocks(); used > 32<<10 {
		t.Errorf("%d bytes in use after Close", used)
	}
}

func TestPieceDividesEveryRing(t *testing.T) {
	for _, slots := range []int{1, 2, 16, 17, 64, 65, 4096} {
		if size := ringSize(slots); size&(size-1) != 0 || size%piece != 0 {
			t.Errorf("%d slots have rings of %d bytes", slots, size)
		}
	}
}

// TestSenderIsWoken checks that a sender that found the ring full is woken before all data is taken, whatever the
// receiver sees of the ring, and that nobody is woken for a ring that was less than half full.
func TestSenderIsWoken(t *testing.T) {
	const armed = 1 // value of a bell whose owner sleeps
	rapid.Check(t, func(rt *rapid.T) {
		conns, _ := pair(t)
		from, to := conns[0], conns[1]
		ring := len(from.out.ring)
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		bell := to.peerBell
		bell.Store(armed)
		data := make([]byte, ring)
		waits, peak, in := false, 0, 0 // peak is the largest fill of the ring since the sender armed its bell
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "sends") && !waits {
				n, err := from.TrySend(data[:rapid.IntRange(1, ring).Draw(rt, "bytes")])
				if err != nil {
					rt.Fatal(err)
				}
				in += n
				peak = max(peak, in)
				waits = n == 0
				continue
			}
			window, err := to.Peek()
			if err != nil {
				rt.Fatal(err)
			}
			if len(window) > 0 {
				n := rapid.IntRange(1, len(window)).Draw(rt, "takes")
				to.Release(n)
				in -= n
			}
			woken := bell.Load() != armed
			switch {
			case woken && peak < ring/2:
				rt.Fatalf("the sender is woken with at most %d of %d bytes in the ring", peak, ring)
			case waits && !woken && in == 0:
				rt.Fatal("the sender sleeps, and the ring is empty")
			case woken:
				bell.Store(armed)
				waits, peak = false, in
			}
		}
	})
}

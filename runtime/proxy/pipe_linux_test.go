package proxy

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/runtime/door"
)

// pattern makes data in which nearby parts differ.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7>>3 ^ i>>11)
	}
	return b
}

// unused checks that no slot of a carrier is in use, and that its pipes are empty.
func unused(t *testing.T, p *Proxy) {
	t.Helper()
	if n := p.Stats().Shared; n != 0 {
		t.Errorf("%d slots are in use", n)
	}
	for i := range p.pipes {
		if n := buffered(p.pipes[i].Load()); n != 0 {
			t.Errorf("%d bytes are in pipe %d", n, i)
		}
	}
}

// submit makes rank 0 lend data to rank 3; there must be room.
func (c *cluster) submit(data []byte) {
	c.t.Helper()
	conn := c.endpoints[0].Conn(3)
	for before := -1; conn.lent < len(data); before = conn.lent {
		if n, err := conn.TrySend(data); n != 0 || err != nil || conn.lent == before {
			c.t.Fatal(n, err)
		}
	}
}

// send makes rank 0 send data to rank 3, until the memory may be reused.
func (c *cluster) send(data []byte) {
	sent := 0
	c.await(0, func() bool {
		n, err := c.endpoints[0].Conn(3).TrySend(data[sent:])
		if sent += n; err != nil {
			c.t.Error(err)
		}
		return sent == len(data) || err != nil
	})
}

// sendThrough makes rank 0 send to rank 3, with rank 1 as the carrier, and checks that all data arrives.
func (c *cluster) sendThrough(data []byte) {
	c.t.Helper()
	var all sync.WaitGroup
	all.Go(func() {
		if got := c.take(3, 0, len(data)); !bytes.Equal(got, data) {
			c.t.Error("not what was sent")
		}
	})
	c.send(data)
	all.Wait()
}

// Large data goes through pipes, and the rest through memory; data that uses both stays in order.
func TestPipes(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	c.connect()
	c.sendThrough(pattern(3*maxWindow + pipedBytes/2))
	if c.endpoints[0].Conn(3).neighbour.writeEnds[0] <= 0 {
		t.Error("no pipe was used")
	}
	for c.proxies[1].Stats().Shared > 0 { // soon
		runtime.Gosched()
	}
	unused(t, c.proxies[1])
}

// Unsent data that a sender leaves in a pipe never reaches the next user of the pipe: if the sender died before it had
// submitted the data, and if the carrier refused the submission because it was false.
func TestPipeIsEmptied(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	c.connect()
	p, carrier := c.proxies[1], c.endpoints[1]
	resume := p.pause()
	var refused int
	carrier.OnRefused(func(err error) {
		refused++
		if !errors.Is(err, ErrToken) {
			t.Error(err)
		}
	})
	const stranger, half = 1<<22 + 1, stepBytes / 2
	good := slot{
		to: carrier.token.Generation, generation: c.endpoints[0].token.Generation, comm: carrier.token.Comm,
		from: 0, dest: 3, kind: uint32(kindData), size: half, piped: 1,
	}
	write := func(pid int) int {
		i := p.segment.claim(ownerOf(pid, 3), firstPiped)
		if n, err := unix.Write(c.endpoints[0].Conn(3).neighbour.writeEnd(i-firstPiped), pattern(half)); n != half {
			t.Fatal(n, err)
		}
		return i
	}
	write(stranger)
	p.reclaim(stranger)
	unused(t, p)
	for name, forge := range map[string]func(*slot){
		"more than there is":  func(s *slot) { s.size++ },
		"less than there is":  func(s *slot) { s.size-- },
		"nothing":             func(s *slot) { s.size = 0 },
		"too much":            func(s *slot) { s.size = 1 << 31 },
		"no data":             func(s *slot) { s.kind = uint32(kindNotice) },
		"of an old carrier":   func(s *slot) { s.to++ },
		"of an old sender":    func(s *slot) { s.generation++ },
		"of another rank":     func(s *slot) { s.from = 1 << 20 },
		"to a rank elsewhere": func(s *slot) { s.dest = 2 },
	} {
		i := write(p.pid)
		p.segment.slots[i] = good
		forge(&p.segment.slots[i])
		p.segment.submit(i)
		want := refused + 1
		if name == "of an old carrier" { // no endpoint is there to be told
			want = refused
		}
		if p.attend(nil); refused != want {
			t.Errorf("%s: %d were refused", name, refused)
		}
		unused(t, p)
	}
	resume()
	c.sendThrough(pattern(maxWindow))
}

// If a connection breaks after a part of a pipe was sent, the rest is dropped, and so is everything queued behind it.
func TestPipeOfLostRail(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	p, r := c.proxies[1], c.endpoints[1].rails[3]
	defer p.pause()()
	p.openPipes()
	c.submit(pattern(2 * stepBytes))
	p.attend(nil)
	if n := buffered(p.pipe(firstPiped)); n != stepBytes {
		t.Fatalf("%d bytes are in the pipe", n)
	}
	if _, err := p.pipe(firstPiped).Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	r.drop()
	unused(t, p)
	c.endpoints[0].Conn(3).lent = 0 // the kernel no longer has any of it
}

// A process of the node reads from a pipe between the carrier's check and the sending: the receiver gets zeros, and the
// rail continues. A sealed connection reads the contents of pipes back into memory.
func TestPipeThatIsReadFrom(t *testing.T) {
	for wire, splices := range map[door.Wire]bool{door.Plain: true, door.Encrypt: false} {
		c := newCluster(t, 0, 0, 1, 1)
		c.wire = wire
		p := c.proxies[1]
		resume := p.pause()
		p.openPipes()
		data := pattern(2 * stepBytes)
		c.submit(data)
		p.attend(nil)
		const away = 1000
		n, err := unix.Read(c.endpoints[0].Conn(3).neighbour.writeEnd(0), make([]byte, away))
		if n != away || err != nil {
			t.Fatal(n, err)
		}
		resume()
		c.connect()
		if c.endpoints[1].rails[3].conn.Load().Splices() != splices {
			t.Fatalf("wire %v: a rail that splices is %v", wire, !splices)
		}
		want := slices.Concat(data[away:stepBytes], make([]byte, away), data[stepBytes:])
		if got := c.take(3, 0, len(data)); !bytes.Equal(got, want) {
			t.Errorf("wire %v: what arrived is not the rest, zeros and the next step", wire)
		}
		c.send(data) // the data has arrived
		c.sendThrough(pattern(3*maxWindow + pipedBytes/2))
		for p.Stats().Shared > 0 { // soon
			runtime.Gosched()
		}
		unused(t, p)
	}
}

// The sender gets lent memory back once the data has arrived, and not before: from TrySend, and from Close.
func TestLent(t *testing.T) {
	for name, take := range map[string]func(*cluster, []byte){
		"TrySend": func(c *cluster, data []byte) { c.send(data) },
		"Close": func(c *cluster, _ []byte) {
			_ = c.endpoints[0].Conn(3).Close()
			c.endpoints[0].Close()
		},
	} {
		c := newCluster(t, 0, 0, 1, 1)
		c.connect()
		data := pattern(3 * lentBytes)
		want := bytes.Clone(data)
		resume := c.proxies[1].pause()
		c.submit(data)
		var all sync.WaitGroup
		all.Go(func() {
			take(c, data)
			clear(data)
		})
		for name == "Close" && c.endpoints[0].Conn(3).state.Load()&closed == 0 {
			runtime.Gosched()
		}
		resume()
		if got := c.take(3, 0, len(want)); !bytes.Equal(got, want) {
			t.Errorf("%s: what arrived is not what was sent", name)
		}
		all.Wait()
	}
}

// A receiver that reports more arrived data than was lent frees no more than was lent.
func TestLentReturnedTooOften(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	c.connect()
	conn := c.endpoints[0].Conn(3)
	conn.returned.Store(1 << 40)
	c.sendThrough(pattern(2 * lentBytes))
	if conn.lent != 0 {
		t.Errorf("%d bytes are lent", conn.lent)
	}
}

// A process only opens the pipe that it was told of, and may write to the pipe of a process that has ended.
func TestOpenPipe(t *testing.T) {
	f, end, err := os.Pipe() // makeStepPipe's pipes are larger, and a user has few of these
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close() //nolint:errcheck // nothing is written
	number, err := pipeNumber(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	addr := uint64(f.Fd())<<32 | number
	other, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // nothing was written
	for _, wrong := range []uint64{addr + 1, uint64(other.Fd())<<32 | uint64(uint32(addr)), 1 << 62} {
		if _, err := openPipe(os.Getpid(), wrong); err == nil {
			t.Errorf("it opened %#x", wrong)
		}
	}
	fd, err := openPipe(os.Getpid(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is read
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Write(fd, []byte("12345678")); n != 8 || err != nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
}

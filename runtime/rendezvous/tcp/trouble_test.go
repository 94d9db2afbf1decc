package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// TestKilledRank kills a waiting process: the others learn it at once.
func TestKilledRank(t *testing.T) {
	s := listen(t, quiet)
	id := s.id(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), rankEnv+"="+id.String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := start(within(t), client(t, id, Config{}), "cards", 0, 4)
	second := start(within(t), client(t, id, Config{}), "cards", 1, 4)
	await(t, "three ranks wait", func() bool { return s.waiting(id, "cards") == 3 })
	killed := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as it says

	told := func(rank int, r result) {
		wantMissing(t, r.err)
		wantPeer(t, r.err, lifecycle.CodeRankDead, 2)
		wantText(t, r.err, fmt.Sprintf("rank 2 (doomed:%d) arrived at ", cmd.Process.Pid), "left at",
			"its process ended")
		if took := time.Since(killed); took > 2*time.Second {
			t.Errorf("rank %d was told after %v", rank, took)
		}
	}
	told(0, <-first)
	told(1, <-second)
	told(3, <-start(within(t), client(t, id, Config{}), "cards", 3, 4)) // the server has seen the end by now
	next := start(within(t), client(t, id, Config{}), "next", 0, 4)
	r := <-next
	if r.err == nil {
		t.Error("rank 0 came twice, and nobody said so")
	}
}

// TestRankDiesBetweenExchanges: a rank that has left the id is missing in exchanges that it never joined.
func TestRankDiesBetweenExchanges(t *testing.T) {
	id := listen(t, quiet).id(t)
	doomed, other := client(t, id, Config{host: "b", pid: 7}), client(t, id, Config{})
	one, two := start(within(t), doomed, "cards", 1, 2), start(within(t), other, "cards", 0, 2)
	if a, b := <-one, <-two; a.err != nil || b.err != nil {
		t.Fatal(a.err, b.err)
	}
	_ = doomed.session.conn.Close() // no goodbye: as the kernel does for a process that ends
	r := <-start(within(t), other, "ready", 0, 2)
	wantMissing(t, r.err)
	wantPeer(t, r.err, lifecycle.CodeRankDead, 1)
	wantText(t, r.err, "rank 1 (b:7) left at", "its process ended")
}

// TestRankClosesEarly: a rank that says bye is distinguished from one that dies.
func TestRankClosesEarly(t *testing.T) {
	s := listen(t, quiet)
	id := s.id(t)
	leaver, other := client(t, id, Config{}), client(t, id, Config{})
	one, two := start(within(t), leaver, "cards", 1, 2), start(within(t), other, "cards", 0, 2)
	if a, b := <-one, <-two; a.err != nil || b.err != nil {
		t.Fatal(a.err, b.err)
	}
	waits := start(within(t), other, "ready", 0, 2)
	await(t, "rank 0 waits", func() bool { return s.waiting(id, "ready") == 1 })
	if err := leaver.Close(); err != nil {
		t.Fatal(err)
	}
	r := <-waits
	wantMissing(t, r.err)
	wantPeer(t, r.err, lifecycle.CodePeerAborted, 1)
	wantText(t, r.err, "it closed its rendezvous")
}

func TestServerCloses(t *testing.T) {
	s := listen(t, quiet)
	id := s.id(t)
	done := start(within(t), client(t, id, Config{}), "cards", 1, 2)
	await(t, "rank 1 waits", func() bool { return s.waiting(id, "cards") == 1 })
	s.Close()
	var stale *rendezvous.StaleError
	r := <-done
	if !errors.As(r.err, &stale) {
		t.Errorf("not a StaleError: %v", r.err)
	}
	wantText(t, r.err, "the rendezvous server was closed at")
	if err := s.serve(id); !errors.Is(err, lifecycle.ErrInvalidUsage) {
		t.Errorf("a closed server serves: %v", err)
	}
}

// TestServerDies: the death of the serving process is reported as the death of rank 0.
func TestServerDies(t *testing.T) {
	s := listen(t, quiet)
	id := s.id(t)
	c := client(t, id, Config{host: "b", pid: 7})
	done := start(within(t), c, "cards", 1, 2)
	await(t, "rank 1 waits", func() bool { return s.waiting(id, "cards") == 1 })
	s.mu.Lock()
	for p := range s.peers {
		_ = p.conn.Close()
	}
	s.mu.Unlock()
	r := <-done
	wantMissing(t, r.err)
	wantPeer(t, r.err, lifecycle.CodeRankDead, 0)
	wantText(t, r.err, "its process ended or closed its runtime (it served the rendezvous at "+id.Address()+")",
		"arrived: 1 (b:7)")
	again := <-start(within(t), c, "more", 1, 2)
	wantMissing(t, again.err)
}

// TestResultsOutliveTheServer: rank 0 may be done and gone before the others have read their cards.
func TestResultsOutliveTheServer(t *testing.T) {
	const size = 32
	s := listen(t, quiet)
	id := s.id(t)
	var done []<-chan result
	card := make([]byte, rendezvous.MaxPayload)
	for rank := range size {
		c, one := client(t, id, Config{}), make(chan result, 1)
		go func() {
			payloads, err := c.Exchange(within(t), "cards", rank, size, card)
			one <- result{payloads, err}
		}()
		done = append(done, one)
	}
	if r := <-done[0]; r.err != nil {
		t.Fatal(r.err)
	}
	s.Close()
	for rank, one := range done[1:] {
		if r := <-one; r.err != nil || len(r.payloads) != size || len(r.payloads[size-1]) != len(card) {
			t.Errorf("rank %d: %v", rank+1, r.err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	address := reserve(t)
	id, err := lifecycle.NewUniqueID(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempts := 0
	_, err = client(t, id, Config{dial: func(ctx context.Context, address string) (net.Conn, error) {
		if attempts++; attempts == 4 {
			cancel()
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}}).Exchange(ctx, "cards", 1, 2, nil)
	wantMissing(t, err)
	wantPeer(t, err, lifecycle.CodeNotJoined, 0)
	var unreachable *rendezvous.UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Attempts != 3 || unreachable.Address != address {
		t.Errorf("not an UnreachableError of three whole attempts: %v", err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the context's end is not in it: %v", err)
	}
	wantText(t, err, "rendezvous of rank 0 at "+address+" was not reached in", "connection refused")
}

// reserve returns an address that nobody listens at, nor can before the test ends.
func reserve(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing was sent on it
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// TestServerComesLate: ranks may come before the serving one.
func TestServerComesLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := lifecycle.NewUniqueID(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, id, Config{})
	done := start(within(t), c, "cards", 0, 1)
	first, err := l.Accept() // it has tried
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	s := open(l, quiet)
	defer s.Close()
	if err := s.serve(id); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil {
		t.Error(r.err)
	}
}

func TestStaleIDs(t *testing.T) {
	s := listen(t, quiet)
	stale := func(t *testing.T, id lifecycle.UniqueID, says string) {
		t.Helper()
		_, err := client(t, id, Config{UnknownTime: 50 * time.Millisecond}).Exchange(within(t), "cards", 1, 2, nil)
		var stale *rendezvous.StaleError
		if !errors.As(err, &stale) || !errors.Is(err, lifecycle.ErrInvalidArgument) {
			t.Errorf("not a StaleError: %v", err)
		}
		wantText(t, err, says)
	}
	t.Run("used up", func(t *testing.T) {
		id := s.id(t)
		a, b := client(t, id, Config{}), client(t, id, Config{})
		one, two := start(within(t), a, "cards", 0, 2), start(within(t), b, "cards", 1, 2)
		if one, two := <-one, <-two; one.err != nil || two.err != nil {
			t.Fatal(one.err, two.err)
		}
		_, _ = a.Close(), b.Close()
		await(t, "the id is forgotten", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Contains(s.forgotten, lifecycle.RootCommID(id))
		})
		stale(t, id, "was used up at")
		if err := s.serve(id); !errors.Is(err, lifecycle.ErrInvalidUsage) {
			t.Errorf("served again: %v", err)
		}
	})
	t.Run("given up", func(t *testing.T) {
		id := s.id(t)
		done := start(within(t), client(t, id, Config{}), "cards", 0, 2)
		await(t, "rank 0 waits", func() bool { return s.waiting(id, "cards") == 1 })
		s.Forget(id)
		r := <-done
		wantText(t, r.err, "was forgotten at")
		stale(t, id, "was forgotten at")
	})
	t.Run("unknown", func(t *testing.T) {
		id, err := lifecycle.NewUniqueID(s.door.Addr())
		if err != nil {
			t.Fatal(err)
		}
		stale(t, id, "is not known at")
	})
	t.Run("long forgotten", func(t *testing.T) {
		id := s.id(t)
		s.Forget(id)
		for range keepForgotten {
			s.Forget(s.id(t))
		}
		stale(t, id, "is not known at")
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.forgotten) != keepForgotten {
			t.Errorf("%d forgotten ids are kept, not %d", len(s.forgotten), keepForgotten)
		}
	})
}

// TestForeignSecret: another job's rank learns what is wrong, and this job is not affected.
func TestForeignSecret(t *testing.T) {
	book := newLogbook()
	s := listen(t, book.logger())
	id := s.id(t)
	first := start(within(t), client(t, id, Config{}), "cards", 0, 2)
	await(t, "rank 0 waits", func() bool { return s.waiting(id, "cards") == 1 })

	_, err := client(t, forge(id), Config{}).Exchange(within(t), "cards", 1, 2, nil)
	wantPeer(t, err, lifecycle.CodeAuth, 0)
	wantText(t, err, id.Address(), "another job")
	if n := s.waiting(id, "cards"); n != 1 {
		t.Errorf("%d ranks wait after the stranger", n)
	}
	second := start(within(t), client(t, id, Config{}), "cards", 1, 2)
	if a, b := <-first, <-second; a.err != nil || b.err != nil {
		t.Error(a.err, b.err)
	}
	await(t, "the stranger is logged", func() bool { return len(book.all()) > 0 }) // behind its answer
	if lines := book.all(); len(lines) != 1 || !strings.Contains(lines[0], "does not have the secret") {
		t.Errorf("the log: %q", lines)
	}
}

// TestServerWithoutTheSecret: a client shows its card only to a server that knows the secret.
func TestServerWithoutTheSecret(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	id, err := lifecycle.NewUniqueID(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan int64, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			heard <- -1
			return
		}
		defer conn.Close()
		_, _ = conn.Write(make([]byte, 2+1+32)) // a challenge, as if it had one
		_, _ = io.ReadFull(conn, make([]byte, 74+32))
		_, _ = conn.Write(make([]byte, 2+32)) // a welcome without a proof
		n, _ := conn.Read(make([]byte, 1))
		heard <- int64(n)
	}()
	_, err = client(t, id, Config{}).Exchange(within(t), "cards", 1, 2, []byte("card"))
	wantPeer(t, err, lifecycle.CodeAuth, 0)
	wantText(t, err, "does not have the secret")
	if n := <-heard; n != 0 {
		t.Error("the client went on talking to it")
	}
}

// TestOtherVersion: a rank of another version of Carillon gets an error that says so.
func TestOtherVersion(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	id, err := lifecycle.NewUniqueID(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write([]byte{2, 99})
			_ = conn.Close()
		}
	}()
	_, err = client(t, id, Config{}).Exchange(within(t), "cards", 1, 2, nil)
	wantPeer(t, err, lifecycle.CodeMismatch, 0)
	wantText(t, err, "another version", "there: 99")
}

func TestManyIDsSideBySide(t *testing.T) {
	const ids, size = 20, 3
	s := listen(t, quiet)
	var done []<-chan result
	for range ids {
		id := s.id(t)
		for rank := range size {
			done = append(done, start(within(t), client(t, id, Config{}), "cards", rank, size))
		}
	}
	for _, one := range done {
		if r := <-one; r.err != nil || len(r.payloads) != size {
			t.Error(r.err)
		}
	}
}

// A process without free descriptors learns that at once, instead of an error that the server is unreachable.
func TestNoDescriptorLeft(t *testing.T) {
	id, err := lifecycle.NewUniqueID("192.0.2.1:4000")
	if err != nil {
		t.Fatal(err)
	}
	none := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	c := Dial(id, Config{Log: quiet, dial: func(context.Context, string) (net.Conn, error) { return nil, none }})
	defer c.Close() //nolint:errcheck // nothing is open
	_, err = c.Exchange(t.Context(), "cards", 1, 2, nil)
	system, ok := errors.AsType[*lifecycle.SystemError](err)
	if !ok || system.Code != lifecycle.CodeSystem || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("it is told %v", err)
	}
}

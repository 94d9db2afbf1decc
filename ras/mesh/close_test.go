package mesh

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// closeTime is what Close may take, whatever the mesh is waiting for: there is nobody to say farewell to.
const closeTime = time.Second

// dialing is a transport that says when it begins to connect.
type dialing struct {
	*transport
	began chan struct{}
}

func (d dialing) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	select {
	case d.began <- struct{}{}:
	default:
	}
	return d.transport.DialTimeout(addr, timeout)
}

// deaf is the address of a listener that has no room for connections: a dialer waits.
func deaf(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at.(*syscall.SockaddrInet4).Port))
	for range 100 { // Linux takes one more than it says
		conn, err := net.DialTimeout("tcp", addr.String(), 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the listener takes everyone")
	return addr
}

// mute is the address of a listener that takes connections and reads, and never writes. read is signaled when data
// came.
func mute(t *testing.T) (addr netip.AddrPort, read <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				came <- struct{}{}
			}
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().(*net.TCPAddr).AddrPort(), came
}

// TestCloseWaitsForNoStranger: Close ends a dial to a host that does not answer, and a wait for an answer on a stream;
// both could take Tuning.StreamTimeout, for one address after the other.
func TestCloseWaitsForNoStranger(t *testing.T) {
	nobody := deaf(t)
	silent, read := mute(t)
	for _, c := range []struct {
		name    string
		to      netip.AddrPort
		reached <-chan struct{}
	}{
		{name: "connecting", to: nobody},
		{name: "reading", to: silent, reached: read},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := dialing{port(t, "loopback", &Stats{}), make(chan struct{}, 1)}
			m := loopback(t, "a", func(c *Config) {
				c.Transport = d
				c.Tuning.StreamTimeout = 5 * time.Second
			})
			joined := make(chan error, 1)
			go func() {
				_, err := m.Join(t.Context(), c.to, c.to)
				joined <- err
			}()
			if c.reached == nil {
				c.reached = d.began
			}
			<-c.reached
			began := time.Now()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > closeTime {
				t.Errorf("Close took %v, want at most %v", took, closeTime)
			}
			if err := <-joined; !errors.Is(err, ErrClosed) {
				t.Errorf("Join returned %v, want that the mesh was closed", err)
			}
		})
	}
}

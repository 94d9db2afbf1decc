package polling

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The amount of abuse at each port. All of it is bounded, as a scanner's traffic is.
const (
	silentCount = 32                     // connections on which nothing is sent
	slowCount   = 16                     // connections on which a byte is sent now and then
	slowPause   = 200 * time.Millisecond // between two of these bytes
	often       = 20 * time.Millisecond  // between two scans, or two datagrams
	seldom      = 200 * time.Millisecond // between two pieces of garbage; also the deadline of each
	redial      = time.Second            // before a connection that was closed is made again
)

// abuser abuses a port, "host:port", until the context ends.
type abuser func(ctx context.Context, address string, count *atomic.Int64)

// abusers by name. The health endpoints and the meshes get all of them.
var abusers = map[string]abuser{
	"garbage":          each(seldom, garbage),
	"datagrams":        each(often, datagram), // to a port where only the mesh listens
	"scans":            each(often, scan),
	"silent":           hold(silentCount, time.Hour, ""),
	"slow":             hold(slowCount, slowPause, "GET /api/v1/ras HTTP/1.1\r\nHost: localhost\r\nX-Slow: "),
	"slow, half a TLS": hold(slowCount/4, slowPause, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
}

// abuse runs all abusers at all addresses. stop ends it, and returns how often each abuser acted.
func abuse(addresses []string) (stop func() map[string]int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	counts := map[string]*atomic.Int64{}
	for _, what := range slices.Sorted(maps.Keys(abusers)) {
		count := &atomic.Int64{}
		counts[what] = count
		for _, address := range addresses {
			running.Go(func() { abusers[what](ctx, address, count) })
		}
	}
	return func() map[string]int64 {
		cancel()
		running.Wait()
		done := map[string]int64{}
		for what, count := range counts {
			done[what] = count.Load()
		}
		return done
	}
}

// each returns an abuser that calls once again and again.
func each(pause time.Duration, once func(ctx context.Context, address string) error) abuser {
	return func(ctx context.Context, address string, count *atomic.Int64) {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			if once(ctx, address) == nil {
				count.Add(1)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}
}

// connect dials from an address that no client has, and closes the connection when the context ends.
func connect(ctx context.Context, address string) (*net.TCPConn, func() bool, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, 1)}, Timeout: patience}
	conn, err := dialer.DialContext(ctx, "tcp4", address)
	if err != nil {
		return nil, nil, err
	}
	return conn.(*net.TCPConn), context.AfterFunc(ctx, func() { _ = conn.Close() }), nil
}

// pieces are beginnings of garbage: none of them is a complete query, and some are parts of one.
var pieces = []string{
	"", "GET / HTTP/9.9\r\n\r\n",
	"GET /api/v1/ras HTTP/1.1\r\nHost: localhost\r\nX-Huge: " + strings.Repeat("x", 64<<10),
	"POST /api/v1/ras HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n",
	"\xf4\x19carillon/0123456789abcdef\x0a\xff\xff\xff\xff",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: example.org\r\n\r\n",
}

// garbage sends something senseless, and reads the answer.
func garbage(ctx context.Context, address string) error {
	conn, hungUp, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer hungUp()
	defer conn.Close() //nolint:errcheck // nobody is owed a farewell
	if err := conn.SetDeadline(time.Now().Add(seldom)); err != nil {
		return err
	}
	if rand.IntN(10) == 0 {
		_ = tls.Client(conn, &tls.Config{ServerName: "localhost"}).HandshakeContext(ctx) // the server doesn't speak TLS
		return nil
	}
	if _, err := conn.Write(append([]byte(pieces[rand.IntN(len(pieces))]), noise(512)...)); err != nil {
		return nil //nolint:nilerr // refused before it was all said
	}
	_, _ = io.Copy(io.Discard, conn) // until either side has had enough
	return nil
}

func noise(most int) []byte {
	b := make([]byte, 1+rand.IntN(most))
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// datagram sends a packet of noise.
func datagram(ctx context.Context, address string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp4", address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is left in it
	_, err = conn.Write(noise(1400))
	return err
}

// scan connects and resets the connection, as a port scanner does.
func scan(ctx context.Context, address string) error {
	conn, hungUp, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer hungUp()
	return errors.Join(conn.SetLinger(0), conn.Close())
}

// hold returns an abuser that holds so many connections. It sends first on each, and then a byte after each pause. A
// connection that is closed is made again.
func hold(number int, pause time.Duration, first string) abuser {
	return func(ctx context.Context, address string, count *atomic.Int64) {
		var held sync.WaitGroup
		for range number {
			held.Go(func() {
				each(redial, func(ctx context.Context, address string) error {
					return drip(ctx, address, pause, first)
				})(ctx,
					address, count)
			})
		}
		held.Wait()
	}
}

// drip sends a byte after each pause, until the other side closes the connection.
func drip(ctx context.Context, address string, pause time.Duration, first string) error {
	conn, hungUp, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer hungUp()
	defer conn.Close() //nolint:errcheck // nobody is owed a farewell
	gone := make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close() //nolint:errcheck // ends the reading
	reading.Go(func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // until either side closes the connection
	})
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for said := first; ; said = "x" {
		if _, err := io.WriteString(conn, said); err != nil {
			return nil //nolint:nilerr // it was hung up
		}
		select {
		case <-gone:
			return nil
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// allDone fails the test if any abuser has done nothing.
func allDone(t *testing.T, done map[string]int64) {
	t.Helper()
	for what, count := range done {
		if count == 0 {
			t.Errorf("%s: nothing was done", what)
		}
	}
}

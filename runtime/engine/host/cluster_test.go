package host_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transports are the transports that connect the ranks of a test.
func transports() map[string]fabric.Config {
	return map[string]fabric.Config{
		"inproc": {},
		"shm":    {DisableP2P: true},
		"tcp":    {DisableP2P: true, DisableSHM: true},
	}
}

// cluster is a communicator whose ranks are goroutines of the test.
type cluster struct {
	tb      testing.TB
	engines []*host.Engine
	comms   []*engine.Comm
	links   []*fabric.Links
	seq     uint64
	memory  [][2][]int32 // by rank, for the buffers of shapes
}

// newCluster connects size ranks.
func newCluster(tb testing.TB, size int, how fabric.Config) *cluster {
	tb.Helper()
	return newClusterOf(tb, size, how, func(_ int, l *fabric.Links) engine.Links { return l })
}

// newClusterOf is newCluster with a function that replaces the links of the engines.
func newClusterOf(
	tb testing.TB, size int, how fabric.Config, wrap func(rank int, l *fabric.Links) engine.Links,
) *cluster {
	tb.Helper()
	f, err := fabric.New(how)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Close)
	unique, err := lifecycle.UniqueIDFromSecret([]byte("a secret of the engine's tests, long enough"), "localhost:1")
	if err != nil {
		tb.Fatal(err)
	}
	id := lifecycle.RootCommID(unique)
	ports, cards := make([]*fabric.Port, size), make([][]byte, size)
	for r := range ports {
		if ports[r], err = f.Prepare(id, unique.Secret(), size, false); err != nil {
			tb.Fatal(err)
		}
		cards[r] = ports[r].Card()
	}
	c := &cluster{
		tb: tb, engines: make([]*host.Engine, size), comms: make([]*engine.Comm, size),
		links: make([]*fabric.Links, size), memory: make([][2][]int32, size),
	}
	for r, err := range each(size, func(r int) error {
		links, err := ports[r].Connect(tb.Context(), lifecycle.CommID{}, r, cards)
		if err != nil {
			return err
		}
		c.comms[r], c.links[r] = engine.NewComm(id, "test", wrap(r, links), nil), links
		c.engines[r] = host.New(c.comms[r])
		return nil
	}) {
		if err != nil {
			tb.Fatalf("connect rank %d: %v", r, err)
		}
	}
	tb.Cleanup(func() {
		for r, e := range c.engines {
			e.Close()
			c.comms[r].Close()
		}
	})
	return c
}

// each runs f for every rank concurrently, and returns the results by rank.
func each(size int, f func(rank int) error) []error {
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	return errs
}

// each runs f with every rank's engine concurrently, under a context that ends before the test's timeout, and returns
// the errors by rank.
func (c *cluster) each(f func(ctx context.Context, rank int, e *host.Engine, seq uint64) error) []error {
	ctx, cancel := context.WithTimeout(c.tb.Context(), time.Minute)
	defer cancel()
	c.seq++
	seq := c.seq
	return each(len(c.engines), func(r int) error { return f(ctx, r, c.engines[r], seq) })
}

// run carries out one operation on one rank, or several together.
func run(ctx context.Context, e *host.Engine, seq uint64, ops ...engine.Op) error {
	call := ops[0].Call
	if len(ops) > 1 {
		call = lifecycle.CallGroupEnd
	}
	e.Begin(call, seq, ops)
	return e.Run(ctx)
}

// run makes one operation per rank, and fails the test if there is an error.
func (c *cluster) run(op func(rank int) engine.Op) {
	c.tb.Helper()
	for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
		o := op(rank)
		return run(ctx, e, seq, o)
	}) {
		if err != nil {
			c.tb.Fatalf("rank %d: %v", r, err)
		}
	}
}

// awaitWait returns when rank is in an operation and is known to wait for rank peer; for any rank if peer is -1.
func (c *cluster) awaitWait(rank, peer int) {
	for {
		if _, _, p, ok := c.comms[rank].Current(); ok && p >= 0 && (peer < 0 || p == peer) {
			return
		}
		runtime.Gosched()
	}
}

// peerError returns err as a PeerError, which it must be.
func peerError(t *testing.T, rank int, err error) *lifecycle.PeerError {
	t.Helper()
	var p *lifecycle.PeerError
	if !errors.As(err, &p) {
		t.Fatalf("rank %d has the error %v (%T), want a *lifecycle.PeerError", rank, err, err)
	}
	return p
}

package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// The configurations that force each transport on ranks of one process, and of one host.
func configs() map[string]fabric.Config {
	return map[string]fabric.Config{
		"inproc": {},
		"shm":    {DisableP2P: true},
		"tcp":    {DisableP2P: true, DisableSHM: true},

		"authenticate": {DisableP2P: true, DisableSHM: true, Wire: door.Authenticate},
		"encrypt":      {DisableP2P: true, DisableSHM: true, Wire: door.Encrypt},

		"pxn in process": {HostID: twoNodes}, "pxn": {HostID: twoNodes, DisableP2P: true},
	}
}

// twoNodes assigns ranks alternately to two nodes.
const twoNodes = "two nodes"

// of returns the configuration of a rank.
func of(config fabric.Config, rank int) fabric.Config {
	if config.HostID == twoNodes {
		config.HostID = fmt.Sprintf("node %d", rank%2)
	}
	return config
}

func secret() []byte { return []byte("a secret of 16 bytes or more") }

// newFabric makes a Fabric that is closed when the test ends, and checks that it has left no goroutine behind.
func newFabric(tb testing.TB, config fabric.Config) *fabric.Fabric {
	tb.Helper()
	f, err := fabric.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Close)
	return f
}

// connect connects one rank per Fabric; a Fabric may be given several times.
func connect(tb testing.TB, fabrics ...*fabric.Fabric) []*fabric.Links {
	tb.Helper()
	id := lifecycle.RootCommID(lifecycle.UniqueID{1: byte(len(fabrics))})
	ports := make([]*fabric.Port, len(fabrics))
	cards := make([][]byte, len(fabrics))
	for rank, f := range fabrics {
		port, err := f.Prepare(id, secret(), len(fabrics), false)
		if err != nil {
			tb.Fatal(err)
		}
		ports[rank], cards[rank] = port, port.Card()
	}
	ctx, stop := context.WithTimeout(tb.Context(), 20*time.Second)
	defer stop()
	links := make([]*fabric.Links, len(fabrics))
	errs := make([]error, len(fabrics))
	var wg sync.WaitGroup
	for rank, port := range ports {
		wg.Go(func() { links[rank], errs[rank] = port.Connect(ctx, lifecycle.CommID{}, rank, cards) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
	for _, l := range links {
		tb.Cleanup(l.Close)
	}
	return links
}

// mesh connects ranks of one process.
func mesh(config fabric.Config) Mesh {
	return func(tb testing.TB, size int) []*fabric.Links {
		tb.Helper()
		first := newFabric(tb, of(config, 0))
		fabrics := make([]*fabric.Fabric, size)
		for i := range fabrics {
			switch {
			case config.HostID != twoNodes:
				fabrics[i] = first
			case config.DisableP2P || i < 2:
				fabrics[i] = newFabric(tb, of(config, i))
			default:
				fabrics[i] = fabrics[i%2]
			}
		}
		return connect(tb, fabrics...)
	}
}

func TestConformanceInOneProcess(t *testing.T) {
	for name, config := range configs() {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
			Run(t, mesh(config))
		})
	}
}

package fabric_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// openFiles counts this process's file descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// prepareLocal prepares n ranks of f.
func prepareLocal(t *testing.T, f *fabric.Fabric, n int) (ports []*fabric.Port, cards [][]byte) {
	t.Helper()
	for range n {
		p, err := f.Prepare(processComm(), secret(), n, true)
		if err != nil {
			t.Fatal(err)
		}
		ports, cards = append(ports, p), append(cards, p.Card())
	}
	return ports, cards
}

func TestPrepareLocal(t *testing.T) {
	for name, tc := range map[string]struct {
		config    fabric.Config
		transport string
		free      bool // of file descriptors
	}{
		"in memory":        {fabric.Config{}, "inproc", true},
		"without P2P":      {fabric.Config{DisableP2P: true}, "shm", false},
		"over the network": {fabric.Config{DisableP2P: true, DisableSHM: true}, "tcp", false},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			ports, cards := prepareLocal(t, newFabric(t, tc.config), 3)
			if took := openFiles(t) - before; tc.free != (took == 0) {
				t.Errorf("it took %d file descriptors", took)
			}
			var wg sync.WaitGroup
			for rank, p := range ports {
				wg.Go(func() {
					l, err := p.Connect(t.Context(), lifecycle.CommID{}, rank, cards)
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
						return
					}
					defer l.Close()
					if got := l.Topology().Transport[(rank+1)%3]; got != tc.transport || l.Local() != tc.free {
						t.Errorf("rank %d: transport is %s, Local is %t", rank, got, l.Local())
					}
					if err := Barrier(t.Context(), l); err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestPrepareLocalRefusesForeignCards(t *testing.T) {
	ports, cards := prepareLocal(t, newFabric(t, fabric.Config{}), 2)
	_, foreign := prepare(t, newFabric(t, fabric.Config{}), newFabric(t, fabric.Config{}))
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	_, err := ports[0].Connect(ctx, lifecycle.CommID{}, 0, [][]byte{cards[0], foreign[1]})
	var peer *lifecycle.PeerError
	if !errors.As(err, &peer) || peer.Rank != 1 || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v, want that rank 1's card comes from another process", err)
	}
}

package node

import (
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A scrape at the moment at which the reading of the tape ends gets all counts: if a counter went back, Prometheus
// would take that as a restart, and add its next value once more.
func TestTalliesAreThereWhileTheFollowerCloses(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Slots: 1, LifeRecords: 128, OpRecords: 128, Tallies: 16})
	if err != nil {
		t.Fatal(err)
	}
	c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 2})
	c.End(c.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 0), lifecycle.CodeOK)
	for range 200 {
		f, err := tape.Follow(t.Context(), w.Path(), 0)
		if err != nil {
			t.Fatal(err)
		}
		tm := &Telemetry{follower: f}
		var asking sync.WaitGroup
		begun, closed := make(chan struct{}, 2), make(chan struct{})
		for range cap(begun) {
			asking.Go(func() {
				for running := true; running; {
					select {
					case <-closed:
						running = false
					default:
					}
					if n := len(tm.tallies()); n != 1 {
						t.Errorf("%d tallies, want 1", n)
						running = false
					}
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		<-begun
		if err := tm.closeFollower(); err != nil {
			t.Error(err)
		}
		close(closed)
		asking.Wait()
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

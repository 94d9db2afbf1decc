package host_test

import (
	"context"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// mirror is a connection to a peer that immediately says what this rank says: in a symmetric operation, a perfect peer.
// So only the engine is measured.
type mirror struct {
	held  []byte
	start int
}

func (m *mirror) Confirm()        {}
func (m *mirror) Confirmed() bool { return true }

func (m *mirror) TrySend(p []byte) (int, error) {
	m.held = append(m.held, p...)
	return len(p), nil
}

func (m *mirror) Peek() ([]byte, error) { return m.held[m.start:], nil }

func (m *mirror) Release(n int) {
	if m.start += n; m.start == len(m.held) {
		m.held, m.start = m.held[:0], 0
	}
}

func (*mirror) Notify(transport.Notice) {}
func (*mirror) Close() error            { return nil }
func (*mirror) Name() string            { return "mirror" }

// hall implements Links with mirrors.
type hall struct {
	conns  []transport.Conn
	waiter *transport.Waiter
}

func newHall(size int) *hall {
	h := &hall{waiter: transport.NewWaiter(size, transport.Patience{})}
	h.conns = append(h.conns, nil)
	for range size - 1 {
		h.conns = append(h.conns, &mirror{})
	}
	return h
}

func (h *hall) Board() *transport.Board      { return nil }
func (h *hall) Rank() int                    { return 0 }
func (h *hall) Size() int                    { return len(h.conns) }
func (h *hall) Conn(peer int) transport.Conn { return h.conns[peer] }
func (h *hall) Waiter() *transport.Waiter    { return h.waiter }
func (h *hall) Topology() transport.Topology {
	return transport.Topology{Node: make([]int, len(h.conns))}
}
func (h *hall) Lost(int) error          { return nil }
func (h *hall) FirstLost() (int, error) { return -1, nil }
func (h *hall) Notify(transport.Notice) {}
func (h *hall) Close()                  {}

// BenchmarkOverhead measures the engine's time for a small all-reduce when no peer ever makes it wait.
func BenchmarkOverhead(b *testing.B) {
	for _, ranks := range []int{2, 4, 8, 16} {
		b.Run(map[int]string{2: "2", 4: "4", 8: "8", 16: "16"}[ranks], func(b *testing.B) {
			e := host.New(engine.NewComm(lifecycle.CommID{}, "", newHall(ranks), nil))
			defer e.Close()
			ops := []engine.Op{allReduce(8, algo.Direct, false)(0)}
			b.ReportAllocs()
			for i := range b.N {
				if err := run(context.Background(), e, uint64(i), ops...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package mem

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type site struct{ *Rendezvous }

func (s site) Rank(*testing.T) rendezvous.Rendezvous { return s.Rendezvous }

func (s site) Waiting(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	roll, ok := s.gather.Roll(key)
	if !ok {
		return 0
	}
	return len(roll.Present())
}

func TestConformance(t *testing.T) {
	rendezvoustest.Run(t, func(_ *testing.T, size int) rendezvoustest.Site { return site{New(size)} })
}

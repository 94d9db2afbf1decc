package mem_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type site struct{ *mem.Rendezvous }

func (s site) Rank(*testing.T) rendezvous.Rendezvous { return s.Rendezvous }

func TestConformance(t *testing.T) {
	rendezvoustest.Run(t, func(_ *testing.T, size int) rendezvoustest.Site { return site{mem.New(size)} })
}

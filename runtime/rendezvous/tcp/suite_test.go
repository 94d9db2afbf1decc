package tcp

import (
	"testing"

	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
)

// TestConformance runs the suite for a meeting in one process, and for one opened to others. Package etcd's run needs
// an etcd, and is among the tests that start real components.
func TestConformance(t *testing.T) {
	site := func(m *mem.Meeting, rank func() rendezvous.Rendezvous) rendezvoustest.Site {
		return rendezvoustest.Site{Rank: rank, Waiting: func(key string) int { return waiting(m, key) }}
	}
	t.Run("mem", func(t *testing.T) {
		rendezvoustest.Run(t, func(_ *testing.T, size int) rendezvoustest.Site {
			m := mem.New()
			return site(m, func() rendezvous.Rendezvous { return m.Rank() })
		})
	})
	for name, c := range map[string]struct{ there, here door.Wire }{
		"tcp":          {},
		"authenticate": {door.Authenticate, door.Authenticate},
		"encrypt":      {door.Encrypt, door.Encrypt},
		"mixed":        {door.Authenticate, door.Encrypt},
	} {
		t.Run(name, func(t *testing.T) {
			rendezvoustest.Run(t, func(t *testing.T, _ int) rendezvoustest.Site {
				s := listenOn(t, c.there, quiet)
				id := s.id(t)
				return site(s.meeting(id), func() rendezvous.Rendezvous {
					return Dial(id, Config{Log: quiet, Wire: c.here})
				})
			})
		})
	}
}

// waiting returns how many ranks wait in an exchange.
func waiting(m *mem.Meeting, key string) int {
	if roll := m.Roll(key); roll != nil {
		return len(roll.Present())
	}
	return 0
}

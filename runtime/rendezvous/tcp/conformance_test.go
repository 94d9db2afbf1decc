package tcp

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

type site struct{ id lifecycle.UniqueID }

func (s site) Rank(*testing.T) rendezvous.Rendezvous { return Dial(s.id, Config{Logger: quiet}) }

// listen opens a server on loopback that lives as long as the test.
func listen(t testing.TB, log *slog.Logger) *Server {
	t.Helper()
	s, err := Listen(t.Context(), "127.0.0.1:0", WithLogger(log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return s
}

// serveID makes a unique id that the server serves.
func serveID(t testing.TB, s *Server, size int) lifecycle.UniqueID {
	t.Helper()
	id, err := lifecycle.NewUniqueID(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(id, size); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestConformance(t *testing.T) {
	rendezvoustest.Run(t, func(t *testing.T, size int) rendezvoustest.Site {
		return site{serveID(t, listen(t, quiet), size)}
	})
}

package tcp

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/rendezvoustest"
)

// rankEnv makes this program a rank that waits for others until it is killed: rank 2 of 4 of the unique id in it.
const rankEnv = "CARILLONTEST_RANK_OF"

func TestMain(m *testing.M) {
	text := os.Getenv(rankEnv)
	if text == "" {
		goleak.VerifyTestMain(m)
		return
	}
	id, err := lifecycle.ParseUniqueID(text)
	if err == nil {
		_, err = Dial(id, Config{Host: "doomed"}).Exchange(context.Background(), "cards", 2, 4, nil)
	}
	fmt.Fprintln(os.Stderr, "this process was to be killed, and got:", err)
	os.Exit(1)
}

var quiet = slog.New(slog.DiscardHandler)

type site struct {
	server *Server
	id     lifecycle.UniqueID
}

func (s site) Rank(*testing.T) rendezvous.Rendezvous { return Dial(s.id, Config{Log: quiet}) }

func (s site) Waiting(key string) int { return waiting(s.server, s.id, key) }

// waiting returns how many ranks wait in an exchange.
func waiting(s *Server, id lifecycle.UniqueID, key string) int {
	m := s.lookup(lifecycle.RootCommID(id))
	if m == nil {
		return 0
	}
	for _, roll := range m.waiting() {
		if roll.Key == key {
			return len(roll.Present())
		}
	}
	return 0
}

// listen opens a server on loopback that lives as long as the test.
func listen(t testing.TB, log *slog.Logger) *Server {
	t.Helper()
	s, err := Listen(t.Context(), "127.0.0.1:0", Config{Log: log})
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
func serveID(t testing.TB, s *Server) lifecycle.UniqueID {
	t.Helper()
	id, err := lifecycle.NewUniqueID(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestConformance(t *testing.T) {
	rendezvoustest.Run(t, func(t *testing.T, _ int) rendezvoustest.Site {
		s := listen(t, quiet)
		return site{s, serveID(t, s)}
	})
}

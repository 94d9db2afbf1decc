package meet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPoint(t *testing.T) *Point {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	d, err := door.Listen(t.Context(), "127.0.0.1:0", door.Plain, log)
	if err != nil {
		t.Fatal(err)
	}
	p := New(func() (*door.Door, error) { return d, nil }, door.Plain, log)
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// reunion is the Reunion of all ranks.
func reunion(seed []byte, rank int, addresses ...string) Reunion {
	r := Reunion{Seed: seed, Addresses: addresses, Rank: rank}
	for i := range addresses {
		r.Members = append(r.Members, i)
	}
	return r
}

// A late rank learns which ranks were there and left. Only the last meetings are remembered.
func TestMeetingsThatFail(t *testing.T) {
	t.Parallel() // it waits most of the time
	p := newPoint(t)
	address, err := p.Addr()
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"one process": "", "several": address} {
		var seeds [][]byte
		for i := range maxPast + 5 {
			seeds = append(seeds, fmt.Appendf(nil, "meeting %d, %s", i, name))
			meeting, err := p.Again(reunion(seeds[i], 0, at, at))
			if err != nil {
				t.Fatal(err)
			}
			if i == maxPast+4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough to come
				if _, err := meeting.Exchange(ctx, "k", 0, 2, nil); !errors.Is(err, lifecycle.ErrNotJoined) {
					t.Errorf("%s: an exchange without the other rank: %v", name, err)
				}
				cancel()
			}
			if err := meeting.Close(); err != nil {
				t.Error(err)
			}
		}
		late := func(seed []byte) error {
			meeting, err := p.Again(reunion(seed, 1, at, at))
			if err != nil {
				return err
			}
			defer meeting.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err = meeting.Exchange(ctx, "k", 1, 2, nil)
			return err
		}
		var missing *rendezvous.MissingError
		if err := late(seeds[maxPast+4]); !errors.As(err, &missing) || len(missing.Gone()) != 1 {
			t.Errorf("%s: a rank that comes late is told %v", name, err)
		}
		if at != "" {
			if err := late(seeds[0]); err == nil || !strings.Contains(err.Error(), "was forgotten") {
				t.Errorf("%s: a rank that comes to a meeting of long ago is told %v", name, err)
			}
		}
		if len(p.past) != maxPast || len(p.local) > maxPast {
			t.Errorf("%s: %d meetings are kept, %d of them here, want the last %d",
				name, len(p.past), len(p.local), maxPast)
		}
	}
}

// The first rank learns of ranks that died before they came, and of ranks that gave up before it came itself, and tells
// all others.
func TestThoseThatWontCome(t *testing.T) {
	first, second, quitter := newPoint(t), newPoint(t), newPoint(t)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("its disk is full"))
	for name, c := range map[string]struct {
		absent func(t *testing.T, seed []byte, addresses []string)
		code   lifecycle.Code
		says   string
	}{
		"died": {
			func(t *testing.T, _ []byte, addresses []string) {
				d, err := door.Listen(t.Context(), "127.0.0.1:0", door.Plain, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				addresses[2] = d.Addr()
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			},
			lifecycle.CodeRankDead, "its process ended",
		},
		"gave up": {
			func(t *testing.T, seed []byte, addresses []string) {
				at, err := quitter.Again(reunion(seed, 2, addresses...))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := at.Exchange(ended, "k", 2, 3, nil); err == nil {
					t.Error("a rank met with a context that has ended")
				}
				if err := at.Close(); err != nil {
					t.Error(err)
				}
			},
			lifecycle.CodeAbandoned, "it withdrew (its disk is full)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			seed := []byte("meeting " + name)
			var addresses []string
			for _, p := range []*Point{first, second, quitter} {
				address, err := p.Addr()
				if err != nil {
					t.Fatal(err)
				}
				addresses = append(addresses, address)
			}
			c.absent(t, seed, addresses)
			var ranks sync.WaitGroup
			for rank, p := range []*Point{first, second} {
				at, err := p.Again(reunion(seed, rank, addresses...))
				if err != nil {
					t.Fatal(err)
				}
				ranks.Go(func() {
					_, err := at.Exchange(t.Context(), "k", rank, 3, nil)
					peer, ok := errors.AsType[*lifecycle.PeerError](err)
					if !ok || peer.Rank != 2 || peer.Code != c.code || !strings.Contains(err.Error(), c.says) {
						t.Errorf("rank %d is told %v", rank, err)
					}
					if err := at.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			ranks.Wait()
		})
	}
}

// If nobody listens at its address any more, the first rank has died, and the others don't wait for it.
func TestTheFirstRankDied(t *testing.T) {
	p := newPoint(t)
	address, err := p.Addr()
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.Again(reunion([]byte("no host"), 1, "127.0.0.1:1", address))
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	_, err = at.Exchange(t.Context(), "k", 1, 2, nil)
	if peer, ok := errors.AsType[*lifecycle.PeerError](err); !ok || peer.Rank != 0 ||
		peer.Code != lifecycle.CodeRankDead {
		t.Errorf("it is told %v", err)
	}
}

package meet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	d, err := door.Listen(t.Context(), "127.0.0.1:0", log)
	if err != nil {
		t.Fatal(err)
	}
	p := New(func() (*door.Door, error) { return d, nil }, log)
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A rank that comes late is told which ranks were there and left. All meetings but the last are forgotten.
func TestMeetingsThatFail(t *testing.T) {
	p := newPoint(t)
	address, err := p.Addr()
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"one process": "", "several": address} {
		var seeds [][]byte
		for i := range maxPast + 5 {
			seeds = append(seeds, fmt.Appendf(nil, "meeting %d, %s", i, name))
			meeting, err := p.Again(seeds[i], at, true, 2)
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
			meeting, err := p.Again(seed, at, false, 2)
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
			t.Errorf("%s: %d meetings are kept, %d of them here, want the last %d", name, len(p.past), len(p.local), maxPast)
		}
	}
}

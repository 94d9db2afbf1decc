package meet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPoint(t *testing.T) *Point {
	t.Helper()
	p := New(Config{
		Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Meetings of ranks that do not all come are forgotten, all but the last few.
func TestMeetingsThatFailAreForgotten(t *testing.T) {
	p := newPoint(t)
	address, err := p.Addr()
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"one process": "", "several": address} {
		kept := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			if at == "" {
				return len(p.local)
			}
			return len(p.past)
		}
		for i := range maxPast + 5 {
			meeting, err := p.Again(fmt.Appendf(nil, "meeting %d, %s", i, name), at, true, 2)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := meeting.Exchange(ctx, "k", 0, 2, nil); !errors.Is(err, lifecycle.ErrNotJoined) {
				t.Errorf("%s: an exchange without the other rank: %v", name, err)
			}
			cancel()
			if err := meeting.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := kept(); n != maxPast {
			t.Errorf("%s: %d meetings are kept, want the last %d", name, n, maxPast)
		}
	}
}

// A meeting to which all come is gone when they have left it.
func TestLocalMeetingEnds(t *testing.T) {
	p := newPoint(t)
	errs := make(chan error, 2)
	for rank := range 2 {
		go func() {
			meeting, err := p.Again([]byte("a meeting of two"), "", rank == 0, 2)
			if err == nil {
				_, err = meeting.Exchange(t.Context(), "k", rank, 2, nil)
			}
			errs <- errors.Join(err, meeting.Close())
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	if len(p.local) != 0 {
		t.Errorf("%d meetings are left", len(p.local))
	}
}

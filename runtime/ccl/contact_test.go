package ccl

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/runtime/engine/host"
)

// TestContacts makes the ranks of three processes, one of which has no address, tell each other their addresses; a
// split does not repeat that.
func TestContacts(t *testing.T) {
	contacts := []string{"a:1", "", "c:3"}
	rts := make([]*Runtime, len(contacts))
	var mu sync.Mutex
	met := make([][]string, len(contacts))
	for r := range rts {
		rt, err := New(Config{
			Engine: host.Kind(),
			Log:    slog.New(slog.DiscardHandler), Contact: func() string { return contacts[r] },
			Met: func(c []string) {
				mu.Lock()
				defer mu.Unlock()
				met[r] = append(met[r], c...)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rt.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		rts[r] = rt
	}
	id, err := rts[0].NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r, rt := range rts {
		wg.Go(func() {
			c, err := rt.InitRank(t.Context(), id, len(rts), r)
			if err != nil {
				t.Error(err)
				return
			}
			child, err := c.Split(t.Context(), 0, r)
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range []*Comm{child, c} {
				if err := c.Destroy(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for r := range met {
		if diff := cmp.Diff([]string{"a:1", "c:3"}, slices.Sorted(slices.Values(met[r]))); diff != "" {
			t.Errorf("rank %d met (-want +got):\n%s", r, diff)
		}
	}
}

package ccl

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestContacts has the ranks of three processes, one of which can be reached nowhere, tell each other where the others are; a split tells
// nobody anew.
func TestContacts(t *testing.T) {
	contacts := []string{"a:1", strings.Repeat("x", 256), "c:3"}
	rts := make([]*Runtime, len(contacts))
	var mu sync.Mutex
	met := make([][]string, len(contacts))
	for r := range rts {
		rt, err := New(Config{
			Log: slog.New(slog.DiscardHandler), Contact: func() string { return contacts[r] },
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

func TestIntroductionsCutShort(t *testing.T) {
	for _, b := range []string{"", "\x01", "\x05host", "\x04host", "\x04host\x02a"} {
		if got, err := readIntroductions([][]byte{[]byte(b)}); err == nil || !strings.Contains(err.Error(), "rank 0") {
			t.Errorf("%q is %+v, %v", b, got, err)
		}
	}
	got, err := readIntroductions([][]byte{[]byte("\x04host\x02a1card"), []byte("\x00\x00")})
	if err != nil || got[0].meets != "host" || got[0].contact != "a1" || string(got[0].card) != "card" || got[1].meets != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

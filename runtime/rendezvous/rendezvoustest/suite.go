// Package rendezvoustest is what every rendezvous must do, as one suite of tests for all implementations.
package rendezvoustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// Site is a rendezvous under test, where ranks of one unique id meet.
type Site interface {
	// Rank returns the rendezvous as one more rank uses it. The suite closes it.
	Rank(t *testing.T) rendezvous.Rendezvous

	// Waiting returns how many ranks wait in the exchange of a key.
	Waiting(key string) int
}

// Run runs the suite. Open makes a fresh site for a number of ranks and arranges its end with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T, size int) Site) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, func(*testing.T, int) Site)
	}{
		{"AllRanksGetAllPayloads", testAll},
		{"KeysRunSideBySide", testKeys},
		{"PayloadsBelongToTheCaller", testOwnership},
		{"AMissingRankIsNamed", testMissing},
		{"ARankThatGivesUpIsNamed", testGivesUp},
		{"AKeyIsUsedOnce", testKeyOnce},
		{"TwoRanksWithOneNumber", testDuplicate},
		{"RanksOfDifferentSizes", testSizes},
		{"ARankOutOfRange", testRange},
		{"ArgumentsBeyondTheLimits", testLimits},
		{"CloseEndsTheWait", testClose},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

type answer struct {
	rank     int
	payloads [][]byte
	err      error
}

// long is a context that outlasts every wait of the suite that is meant to end by itself.
func long(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// await returns when the condition holds, which nothing announces.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for tick := time.Tick(time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-limit:
			t.Error("waited 30 seconds in vain")
			return
		}
	}
}

// exchange runs one Exchange per rank at the same time and returns the answers in the order of ranks.
func exchange(
	ctx context.Context, t *testing.T, at []rendezvous.Rendezvous, key string, ranks []int, sizes ...int,
) []answer {
	t.Helper()
	answers := make([]answer, len(ranks))
	var all sync.WaitGroup
	for i, rank := range ranks {
		size := sizes[min(i, len(sizes)-1)]
		all.Go(func() {
			payloads, err := at[i].Exchange(ctx, key, rank, size, payload(key, rank))
			answers[i] = answer{rank, payloads, err}
		})
	}
	all.Wait()
	return answers
}

func payload(key string, rank int) []byte { return fmt.Appendf(nil, "%s of rank %d", key, rank) }

func ranksOf(t *testing.T, site Site, n int) []rendezvous.Rendezvous {
	t.Helper()
	at := make([]rendezvous.Rendezvous, n)
	for i := range at {
		at[i] = site.Rank(t)
		t.Cleanup(func() {
			if err := at[i].Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	return at
}

func upTo(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

func testAll(t *testing.T, open func(*testing.T, int) Site) {
	for _, size := range []int{1, 2, 3, 17} {
		t.Run(fmt.Sprintf("%d", size), func(t *testing.T) {
			at := ranksOf(t, open(t, size), size)
			for _, a := range exchange(long(t), t, at, "cards", upTo(size), size) {
				checkPayloads(t, a, "cards", size)
			}
		})
	}
}

func checkPayloads(t *testing.T, a answer, key string, size int) {
	t.Helper()
	if a.err != nil {
		t.Errorf("rank %d: %v", a.rank, a.err)
		return
	}
	if len(a.payloads) != size {
		t.Errorf("rank %d got %d payloads of %d", a.rank, len(a.payloads), size)
		return
	}
	for rank, got := range a.payloads {
		if !bytes.Equal(got, payload(key, rank)) {
			t.Errorf("rank %d: payload %d is %q", a.rank, rank, got)
		}
	}
}

func testKeys(t *testing.T, open func(*testing.T, int) Site) {
	const size, keys = 3, 8
	at := ranksOf(t, open(t, size), size)
	ctx := long(t)
	var all sync.WaitGroup
	for k := range keys {
		all.Go(func() {
			key := fmt.Sprintf("key %d", k)
			for _, a := range exchange(ctx, t, at, key, upTo(size), size) {
				checkPayloads(t, a, key, size)
			}
		})
	}
	all.Wait()
}

func testOwnership(t *testing.T, open func(*testing.T, int) Site) {
	at := ranksOf(t, open(t, 2), 2)
	mine := []byte("before")
	done := make(chan answer, 1)
	go func() {
		payloads, err := at[0].Exchange(long(t), "cards", 0, 2, mine)
		copy(mine, "after!")
		done <- answer{0, payloads, err}
	}()
	other, err := at[1].Exchange(long(t), "cards", 1, 2, nil)
	first := <-done
	if err != nil || first.err != nil {
		t.Fatal(err, first.err)
	}
	if string(other[0]) != "before" {
		t.Errorf("rank 1 got %q: rank 0's later write shows", other[0])
	}
	copy(other[0], "XXXXXX")
	if string(first.payloads[0]) != "before" {
		t.Errorf("rank 0 got %q: rank 1's write shows", first.payloads[0])
	}
	if len(other[1]) != 0 {
		t.Errorf("an empty payload came as %q", other[1])
	}
}

func testMissing(t *testing.T, open func(*testing.T, int) Site) {
	site := open(t, 4)
	at := ranksOf(t, site, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		await(t, func() bool { return site.Waiting("cards") == 3 })
		cancel()
	}()
	for _, a := range exchange(ctx, t, at, "cards", []int{0, 1, 3}, 4) {
		missing := wantMissing(t, a)
		if got := missing.Missing(); len(got) != 1 || got[0] != 2 {
			t.Errorf("rank %d: missing %v, not rank 2", a.rank, got)
		}
		peer := wantPeer(t, a.err, lifecycle.CodeNotJoined, 2)
		if peer.Self != a.rank || time.Since(peer.Since) > time.Minute {
			t.Errorf("rank %d: told about self %d since %v", a.rank, peer.Self, peer.Since)
		}
		if !strings.Contains(a.err.Error(), "not arrived: 2") {
			t.Errorf("rank %d: %v", a.rank, a.err)
		}
		if seen := len(missing.Members); seen != 3 {
			t.Errorf("rank %d knows of %d ranks that arrived, not 3: %v", a.rank, seen, a.err)
		}
	}
}

func testGivesUp(t *testing.T, open func(*testing.T, int) Site) {
	site := open(t, 3)
	at := ranksOf(t, site, 3)
	waiting, cancel := context.WithCancel(t.Context())
	first := make(chan answer, 1)
	go func() {
		_, err := at[0].Exchange(waiting, "cards", 0, 3, nil)
		first <- answer{rank: 0, err: err}
	}()
	second := make(chan answer, 1)
	go func() {
		_, err := at[1].Exchange(long(t), "cards", 1, 3, nil)
		second <- answer{rank: 1, err: err}
	}()
	await(t, func() bool { return site.Waiting("cards") == 2 })
	cancel()

	a := <-first
	wantMissing(t, a)
	if !errors.Is(a.err, context.Canceled) {
		t.Errorf("rank 0 does not say that its context was canceled: %v", a.err)
	}
	b := <-second // long before its own context ends
	wantMissing(t, b)
	for _, want := range []string{"rank 0", "gave up", "not arrived: 2"} {
		if !strings.Contains(b.err.Error(), want) {
			t.Errorf("rank 1 is not told %q: %v", want, b.err)
		}
	}
	wantPeer(t, b.err, lifecycle.CodeNotJoined, 2) // the one that made rank 0 give up

	_, err := at[2].Exchange(long(t), "cards", 2, 3, nil) // too late
	wantMissing(t, answer{rank: 2, err: err})
	wantPeer(t, err, lifecycle.CodeAbandoned, 0)
}

func testKeyOnce(t *testing.T, open func(*testing.T, int) Site) {
	at := ranksOf(t, open(t, 2), 2)
	for _, a := range exchange(long(t), t, at, "cards", upTo(2), 2) {
		checkPayloads(t, a, "cards", 2)
	}
	_, err := at[1].Exchange(long(t), "cards", 1, 2, nil)
	var stale *rendezvous.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, lifecycle.ErrInvalidArgument) {
		t.Fatalf("a key that was used before: %v", err)
	}
	for _, a := range exchange(long(t), t, at, "more", upTo(2), 2) {
		checkPayloads(t, a, "more", 2)
	}
}

func testDuplicate(t *testing.T, open func(*testing.T, int) Site) {
	at := ranksOf(t, open(t, 3), 3)
	for _, a := range exchange(long(t), t, at, "cards", []int{0, 1, 1}, 3) {
		conflict := wantConflict(t, a, rendezvous.RankTaken)
		c := conflict.Claims
		if len(c) != 2 || c[0].Rank != 1 || c[1].Rank != 1 || c[0].PID == 0 {
			t.Errorf("rank %d: claims %+v", a.rank, conflict.Claims)
		}
		if !strings.Contains(a.err.Error(), "rank 1 is claimed twice") {
			t.Errorf("rank %d: %v", a.rank, a.err)
		}
	}
}

func testSizes(t *testing.T, open func(*testing.T, int) Site) {
	at := ranksOf(t, open(t, 3), 3)
	for _, a := range exchange(long(t), t, at, "cards", []int{0, 1, 2}, 3, 3, 4) {
		wantConflict(t, a, rendezvous.SizesDiffer)
		if !strings.Contains(a.err.Error(), "4 say rank 2") {
			t.Errorf("rank %d: %v", a.rank, a.err)
		}
	}
}

func testRange(t *testing.T, open func(*testing.T, int) Site) {
	for _, bad := range []int{2, -1, 1 << 20} {
		at := ranksOf(t, open(t, 2), 2)
		for _, a := range exchange(long(t), t, at, "cards", []int{0, bad}, 2) {
			wantConflict(t, a, rendezvous.RankOutOfRange)
			if !strings.Contains(a.err.Error(), fmt.Sprintf("rank %d (", bad)) {
				t.Errorf("rank %d: %v", a.rank, a.err)
			}
		}
	}
}

func testLimits(t *testing.T, open func(*testing.T, int) Site) {
	at := ranksOf(t, open(t, 1), 1)[0]
	for _, test := range []struct {
		name    string
		key     string
		size    int
		payload []byte
	}{
		{"no key", "", 1, nil},
		{"long key", strings.Repeat("k", rendezvous.MaxKey+1), 1, nil},
		{"no ranks", "cards", 0, nil},
		{"negative ranks", "cards", -4, nil},
		{"too many ranks", "cards", rendezvous.MaxRanks + 1, nil},
		{"large payload", "cards", 1, make([]byte, rendezvous.MaxPayload+1)},
	} {
		_, err := at.Exchange(long(t), test.key, 0, test.size, test.payload)
		var usage *lifecycle.UsageError
		if !errors.As(err, &usage) || usage.Code != lifecycle.CodeInvalidArgument {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	largest := make([]byte, rendezvous.MaxPayload)
	key := strings.Repeat("k", rendezvous.MaxKey)
	got, err := at.Exchange(long(t), key, 0, 1, largest)
	if err != nil || len(got) != 1 || len(got[0]) != len(largest) {
		t.Errorf("the largest allowed: %v", err)
	}
}

func testClose(t *testing.T, open func(*testing.T, int) Site) {
	site := open(t, 2)
	at := ranksOf(t, site, 1)[0]
	done := make(chan error, 1)
	go func() {
		_, err := at.Exchange(long(t), "cards", 0, 2, nil)
		done <- err
	}()
	await(t, func() bool { return site.Waiting("cards") == 1 })
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("an exchange outlived the Close of its rendezvous")
	}
	if _, err := at.Exchange(long(t), "more", 0, 2, nil); err == nil {
		t.Error("an exchange on a closed rendezvous")
	}
	if err := at.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

func wantMissing(t *testing.T, a answer) *rendezvous.MissingError {
	t.Helper()
	var missing *rendezvous.MissingError
	if !errors.As(a.err, &missing) || !errors.Is(a.err, lifecycle.ErrNotJoined) {
		t.Fatalf("rank %d: not a MissingError: %v", a.rank, a.err)
	}
	return missing
}

func wantConflict(t *testing.T, a answer, kind rendezvous.Conflict) *rendezvous.ConflictError {
	t.Helper()
	var conflict *rendezvous.ConflictError
	if !errors.As(a.err, &conflict) || !errors.Is(a.err, lifecycle.ErrMismatch) {
		t.Fatalf("rank %d: not a ConflictError: %v", a.rank, a.err)
	}
	if conflict.Kind != kind {
		t.Errorf("rank %d: conflict %d, not %d: %v", a.rank, conflict.Kind, kind, a.err)
	}
	return conflict
}

func wantPeer(t *testing.T, err error, code lifecycle.Code, rank int) *lifecycle.PeerError {
	t.Helper()
	var peer *lifecycle.PeerError
	if !errors.As(err, &peer) {
		t.Fatalf("no PeerError in: %v", err)
	}
	if peer.Code != code || peer.Rank != rank || lifecycle.CodeOf(err) != code {
		t.Errorf("%s of rank %d (code %s), not %s of rank %d: %v",
			peer.Code, peer.Rank, lifecycle.CodeOf(err), code, rank, err)
	}
	return peer
}

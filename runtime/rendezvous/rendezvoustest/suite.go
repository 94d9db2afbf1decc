// Package rendezvoustest is a test suite for every rendezvous: mem, tcp and etcd pass it.
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
type Site struct {
	// Rank returns the rendezvous for one more rank.
	Rank func() rendezvous.Rendezvous
	// Waiting is how many ranks wait in the exchange of a key.
	Waiting func(key string) int
}

// Opener makes a fresh site for a number of ranks, which ends with the test.
type Opener func(t *testing.T, size int) Site

// Run runs the suite, each test on sites of its own.
func Run(t *testing.T, open Opener) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Opener)
	}{
		{"AllRanksGetAllPayloads", testAll},
		{"OneKeyAfterTheOther", testKeys},
		{"PayloadsBelongToTheCaller", testOwnership},
		{"AMissingRankIsNamed", testMissing},
		{"ARankThatGivesUpIsNamed", testGivesUp},
		{"ARankThatWontComeIsNamed", testAbsent},
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

func ranksOf(t *testing.T, s Site, n int) []rendezvous.Rendezvous {
	t.Helper()
	at := make([]rendezvous.Rendezvous, n)
	for i := range at {
		at[i] = s.Rank()
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

func testAll(t *testing.T, open Opener) {
	for _, size := range []int{1, 2, 3, 17} {
		t.Run(fmt.Sprintf("%d", size), func(t *testing.T) {
			at := ranksOf(t, open(t, size), size)
			for _, a := range exchange(Within(t), t, at, "cards", upTo(size), size) {
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

func testKeys(t *testing.T, open Opener) {
	const size, keys = 3, 8
	at := ranksOf(t, open(t, size), size)
	for k := range keys {
		key := fmt.Sprintf("key %d", k)
		for _, a := range exchange(Within(t), t, at, key, upTo(size), size) {
			checkPayloads(t, a, key, size)
		}
	}
}

func testOwnership(t *testing.T, open Opener) {
	at := ranksOf(t, open(t, 2), 2)
	mine := []byte("before")
	done := make(chan answer, 1)
	go func() {
		payloads, err := at[0].Exchange(Within(t), "cards", 0, 2, mine)
		copy(mine, "after!")
		done <- answer{0, payloads, err}
	}()
	other, err := at[1].Exchange(Within(t), "cards", 1, 2, nil)
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

func testMissing(t *testing.T, open Opener) {
	s := open(t, 4)
	at := ranksOf(t, s, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		Await(t, "3 wait", func() bool { return s.Waiting("cards") == 3 })
		cancel()
	}()
	for _, a := range exchange(ctx, t, at, "cards", []int{0, 1, 3}, 4) {
		missing := WantMissing(t, a.err)
		if got := missing.Missing(); len(got) != 1 || got[0] != 2 {
			t.Errorf("rank %d: missing %v, not rank 2", a.rank, got)
		}
		peer := WantPeer(t, a.err, lifecycle.CodeNotJoined, 2)
		if peer.Self != a.rank || time.Since(peer.Since) > time.Minute {
			t.Errorf("rank %d: told about self %d since %v", a.rank, peer.Self, peer.Since)
		}
		if !strings.Contains(a.err.Error(), "rank 2 has not arrived") {
			t.Errorf("rank %d: %v", a.rank, a.err)
		}
		if seen := len(missing.Members); seen != 3 {
			t.Errorf("rank %d knows of %d ranks that arrived, not 3: %v", a.rank, seen, a.err)
		}
	}
}

func testGivesUp(t *testing.T, open Opener) {
	s := open(t, 3)
	at := ranksOf(t, s, 3)
	brief, cancel := context.WithCancel(t.Context())
	first := make(chan answer, 1)
	go func() {
		_, err := at[0].Exchange(brief, "cards", 0, 3, nil)
		first <- answer{rank: 0, err: err}
	}()
	second := make(chan answer, 1)
	go func() {
		_, err := at[1].Exchange(Within(t), "cards", 1, 3, nil)
		second <- answer{rank: 1, err: err}
	}()
	Await(t, "2 wait", func() bool { return s.Waiting("cards") == 2 })
	cancel()

	a := <-first
	WantMissing(t, a.err)
	if !errors.Is(a.err, context.Canceled) {
		t.Errorf("rank 0 does not say that its context was canceled: %v", a.err)
	}
	b := <-second // long before its own context ends
	WantMissing(t, b.err)
	for _, want := range []string{"rank 0", "withdrew (its context was canceled", "rank 2 has not arrived"} {
		if !strings.Contains(b.err.Error(), want) {
			t.Errorf("rank 1 is not told %q: %v", want, b.err)
		}
	}
	WantPeer(t, b.err, lifecycle.CodeAbandoned, 0)

	_, err := at[2].Exchange(Within(t), "cards", 2, 3, nil) // too late
	WantMissing(t, err)
	WantPeer(t, err, lifecycle.CodeAbandoned, 0)
}

// A rank that comes with a context that has ended takes no part, and all others are told why: those that wait, and
// those that come later.
func testAbsent(t *testing.T, open Opener) {
	s := open(t, 3)
	at := ranksOf(t, s, 3)
	ill, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("its disk is full"))
	waits := make(chan error, 1)
	go func() {
		_, err := at[1].Exchange(Within(t), "cards", 1, 3, nil)
		waits <- err
	}()
	Await(t, "1 waits", func() bool { return s.Waiting("cards") == 1 })
	_, err := at[0].Exchange(ill, "cards", 0, 3, nil)
	WantMissing(t, err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("rank 0 does not say that its context was canceled: %v", err)
	}
	_, late := at[2].Exchange(Within(t), "cards", 2, 3, nil)
	for _, err := range []error{<-waits, late} {
		WantMissing(t, err)
		WantPeer(t, err, lifecycle.CodeAbandoned, 0)
		if !strings.Contains(err.Error(), "withdrew (its disk is full") {
			t.Errorf("another rank is not told why: %v", err)
		}
	}
}

func testKeyOnce(t *testing.T, open Opener) {
	at := ranksOf(t, open(t, 2), 2)
	for _, a := range exchange(Within(t), t, at, "cards", upTo(2), 2) {
		checkPayloads(t, a, "cards", 2)
	}
	_, err := at[1].Exchange(Within(t), "cards", 1, 2, nil)
	var stale *rendezvous.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, lifecycle.ErrInvalidArgument) {
		t.Fatalf("a key that was used before: %v", err)
	}
	for _, a := range exchange(Within(t), t, at, "more", upTo(2), 2) {
		checkPayloads(t, a, "more", 2)
	}
}

func testDuplicate(t *testing.T, open Opener) {
	at := ranksOf(t, open(t, 3), 3)
	for _, a := range exchange(Within(t), t, at, "cards", []int{0, 1, 1}, 3) {
		conflict := wantConflict(t, a, "rank 1 is claimed twice")
		c := conflict.Claims
		if len(c) != 2 || c[0].Rank != 1 || c[1].Rank != 1 || c[0].PID == 0 {
			t.Errorf("rank %d: claims %+v", a.rank, conflict.Claims)
		}
	}
}

func testSizes(t *testing.T, open Opener) {
	at := ranksOf(t, open(t, 3), 3)
	for _, a := range exchange(Within(t), t, at, "cards", []int{0, 1, 2}, 3, 3, 4) {
		wantConflict(t, a, "4 say rank 2")
	}
}

func testRange(t *testing.T, open Opener) {
	for _, bad := range []int{2, -1, 1 << 20} {
		at := ranksOf(t, open(t, 2), 2)
		for _, a := range exchange(Within(t), t, at, "cards", []int{0, bad}, 2) {
			wantConflict(t, a, fmt.Sprintf("out of range: rank %d (", bad))
		}
	}
}

func testLimits(t *testing.T, open Opener) {
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
		_, err := at.Exchange(Within(t), test.key, 0, test.size, test.payload)
		var usage *lifecycle.UsageError
		if !errors.As(err, &usage) || usage.Code != lifecycle.CodeInvalidArgument {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	largest := make([]byte, rendezvous.MaxPayload)
	key := strings.Repeat("k", rendezvous.MaxKey)
	got, err := at.Exchange(Within(t), key, 0, 1, largest)
	if err != nil || len(got) != 1 || len(got[0]) != len(largest) {
		t.Errorf("the largest allowed: %v", err)
	}
}

func testClose(t *testing.T, open Opener) {
	s := open(t, 2)
	at := ranksOf(t, s, 1)[0]
	done := make(chan error, 1)
	go func() {
		_, err := at.Exchange(Within(t), "cards", 0, 2, nil)
		done <- err
	}()
	Await(t, "1 wait", func() bool { return s.Waiting("cards") == 1 })
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("an exchange outlived the Close of its rendezvous")
	}
	if _, err := at.Exchange(Within(t), "more", 0, 2, nil); err == nil {
		t.Error("an exchange on a closed rendezvous")
	}
	if err := at.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

func wantConflict(t *testing.T, a answer, says string) *rendezvous.ConflictError {
	t.Helper()
	var conflict *rendezvous.ConflictError
	if !errors.As(a.err, &conflict) || !errors.Is(a.err, lifecycle.ErrMismatch) {
		t.Fatalf("rank %d: not a ConflictError: %v", a.rank, a.err)
	}
	if !strings.Contains(conflict.Detail, says) {
		t.Errorf("rank %d: %v, want that %s", a.rank, a.err, says)
	}
	return conflict
}

// Within returns a context that ends only if the test hangs.
func Within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Await polls until the condition holds.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for tick := time.Tick(time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-limit:
			t.Fatalf("waited 30 seconds in vain until %s", what)
		}
	}
}

// WantPeer checks which rank an error blames.
func WantPeer(t testing.TB, err error, code lifecycle.Code, rank int) *lifecycle.PeerError {
	t.Helper()
	var peer *lifecycle.PeerError
	if !errors.As(err, &peer) {
		t.Fatalf("nobody is blamed: %v", err)
	}
	own := code
	if errors.Is(err, context.Canceled) { // the rank's own context, whichever rank it waited for
		own = lifecycle.CodeCanceled
	}
	if peer.Code != code || peer.Rank != rank || lifecycle.CodeOf(err) != own {
		t.Errorf("%s of rank %d (code %s), not %s of rank %d (code %s): %v",
			peer.Code, peer.Rank, lifecycle.CodeOf(err), code, rank, own, err)
	}
	return peer
}

// WantMissing checks that an error is a MissingError.
func WantMissing(t testing.TB, err error) *rendezvous.MissingError {
	t.Helper()
	var missing *rendezvous.MissingError
	if !errors.As(err, &missing) || !errors.Is(err, lifecycle.ErrNotJoined) {
		t.Fatalf("not a MissingError: %v", err)
	}
	return missing
}

package rendezvous_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func member(rank, size int, host string) rendezvous.Member {
	return rendezvous.Member{
		Rank: rank, Size: size, Host: host, PID: 100 + rank,
		Arrived: noon.Add(time.Duration(rank) * time.Second),
	}
}

func gone(m rendezvous.Member, how rendezvous.Departure, detail string) rendezvous.Member {
	m.Left, m.How, m.Detail = noon.Add(time.Minute), how, detail
	return m
}

func without(was int, ranks string, m rendezvous.Member) rendezvous.Member {
	m.Was, m.Without = was, ranks
	return m
}

// TestStories compares the whole texts of errors, and the ranks that they blame.
func TestStories(t *testing.T) {
	const size = 4
	for _, test := range []struct {
		name    string
		members []rendezvous.Member
		cause   error
		says    string // after "rendezvous "cards": "
		code    lifecycle.Code
		rank    int
	}{
		{
			"one is missing",
			[]rendezvous.Member{member(0, size, "a"), member(1, size, "a"), member(3, size, "b")},
			context.DeadlineExceeded,
			"rank 1 of 4 waited 30s; rank 2 has not arrived; arrived: 0 (a:100), 1 (a:101) and 3 (b:103); " +
				"see whether the missing ranks were started, and their logs: context deadline exceeded",
			lifecycle.CodeNotJoined, 2,
		},
		{
			"one died, which explains more than another's absence",
			[]rendezvous.Member{
				member(0, size, "a"), member(1, size, "a"), gone(member(3, size, "b"), rendezvous.Died, ""),
			},
			nil,
			"rank 1 of 4 waited 30s; rank 2 has not arrived; left: rank 3 (b:103) arrived at 12:00:03.000, left at " +
				"12:01:00.000: its process ended; arrived: 0 (a:100) and 1 (a:101)",
			lifecycle.CodeRankDead, 3,
		},
		{
			"one gave up, because another is missing",
			[]rendezvous.Member{
				gone(member(0, size, "a"), rendezvous.GaveUp, "its context expired after 5s"),
				member(1, size, "a"), member(3, size, "b"),
			},
			nil,
			"rank 1 of 4 waited 30s; rank 2 has not arrived; left: rank 0 (a:100) arrived at 12:00:00.000, left at " +
				"12:01:00.000: it gave up (its context expired after 5s); arrived: 1 (a:101) and 3 (b:103)",
			lifecycle.CodeNotJoined, 2,
		},
		{
			"one gave up before this one came",
			[]rendezvous.Member{
				gone(member(0, size, "a"), rendezvous.GaveUp, ""), member(1, size, "a"), member(2, size, "a"),
				member(3, size, "b"),
			},
			nil,
			"rank 1 of 4 waited 30s; left: rank 0 (a:100) arrived at 12:00:00.000, left at 12:01:00.000: it gave up; " +
				"arrived: 1 (a:101), 2 (a:102) and 3 (b:103)",
			lifecycle.CodeAbandoned, 0,
		},
		{
			"another of its number gave up",
			[]rendezvous.Member{
				member(0, size, "a"), gone(member(1, size, "a"), rendezvous.GaveUp, ""), member(1, size, "b"),
				member(2, size, "a"), member(3, size, "b"),
			},
			nil,
			"rank 1 of 4 waited 30s; left: rank 1 (a:101) arrived at 12:00:01.000, left at 12:01:00.000: it gave up; " +
				"arrived: 0 (a:100), 1 (b:101), 2 (a:102) and 3 (b:103)",
			lifecycle.CodeAbandoned, 1,
		},
		{
			"a network broke",
			[]rendezvous.Member{
				member(0, size, "a"), member(1, size, "a"), member(2, size, "a"),
				gone(member(3, size, "b"), rendezvous.Lost, "no route to host"),
			},
			nil,
			"rank 1 of 4 waited 30s; left: rank 3 (b:103) arrived at 12:00:03.000, left at 12:01:00.000: its " +
				"connection broke (no route to host); arrived: 0 (a:100), 1 (a:101) and 2 (a:102)",
			lifecycle.CodeUnreachable, 3,
		},
		{
			"one number twice",
			[]rendezvous.Member{member(0, size, "a"), member(1, size, "a"), member(1, size, "b")},
			nil,
			"rank 1 is claimed twice, by a:101 and by b:101; give each process a rank of its own",
			lifecycle.CodeMismatch, 1,
		},
		{
			"sizes",
			[]rendezvous.Member{member(0, size, "a"), member(1, size, "a"), member(2, 8, "b")},
			nil,
			"the ranks disagree on how many they are: 4 say rank 0 (a:100) and rank 1 (a:101); 8 say rank 2 (b:102); " +
				"give all the same size",
			lifecycle.CodeMismatch, 0,
		},
		{
			"other lists",
			[]rendezvous.Member{
				without(0, "rank 3", member(0, 3, "a")), without(1, "rank 3", member(1, 3, "a")),
				without(3, "rank 2", member(2, 3, "b")), gone(member(2, size, "b"), rendezvous.Died, ""),
			},
			nil,
			"the ranks disagree on who goes on: rank 3 (b:102) leaves out rank 2; rank 0 (a:100) and rank 1 (a:101) " +
				"leave out rank 3; give all the same list",
			lifecycle.CodeMismatch, 0,
		},
		{
			"one that another one contradicts left, which explains more than another's death",
			[]rendezvous.Member{
				gone(member(0, size, "a"), rendezvous.Died, ""), member(1, size, "a"), member(2, size, "a"),
				gone(member(3, size, "b"), rendezvous.Refuted, "the list"),
			},
			nil,
			"rank 1 of 4 waited 30s; left: rank 0 (a:100) arrived at 12:00:00.000, left at 12:01:00.000: its process " +
				"ended and rank 3 (b:103) arrived at 12:00:03.000, left at 12:01:00.000: another rank contradicts it " +
				"(the list); arrived: 1 (a:101) and 2 (a:102)",
			lifecycle.CodeMismatch, 3,
		},
		{
			"out of range",
			[]rendezvous.Member{member(0, size, "a"), member(4, size, "b")},
			nil,
			"out of range: rank 4 (b:104) of size 4; ranks go from 0 to size-1",
			lifecycle.CodeMismatch, 4,
		},
		{
			"nobody was reached",
			nil,
			&rendezvous.UnreachableError{
				Address: "a:4000", Self: 1, Attempts: 7, Since: noon, Context: context.DeadlineExceeded,
				Last: errors.New("connection refused"),
			},
			"rank 1 of 4 waited 30s: the rendezvous of rank 0 at a:4000 was not reached in 7 attempts (context " +
				"deadline exceeded); the last one: connection refused; see whether that rank runs and its " +
				"address is right",
			lifecycle.CodeNotJoined, 0,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			roll := rendezvous.Roll{Key: "cards", Size: size, Members: test.members}
			err := roll.Err(1, time.Now().Add(-30*time.Second), test.cause)
			var missing *rendezvous.MissingError
			if errors.As(err, &missing) {
				missing.Waited = missing.Waited.Round(time.Second)
				if !errors.Is(err, lifecycle.ErrNotJoined) {
					t.Error("it is no ErrNotJoined")
				}
			}
			if got := strings.TrimPrefix(err.Error(), `rendezvous "cards": `); got != test.says {
				t.Errorf("it says\n%s\nand not\n%s", got, test.says)
			}
			var peer *lifecycle.PeerError
			if !errors.As(err, &peer) || peer.Code != test.code || peer.Rank != test.rank || peer.Self != 1 ||
				lifecycle.CodeOf(err) != test.code {
				t.Errorf("it blames %+v", peer)
			}
			if test.cause != nil && !errors.Is(err, test.cause) {
				t.Errorf("it lost its cause %v", test.cause)
			}
		})
	}
}

func TestALongListIsCutShort(t *testing.T) {
	roll := rendezvous.Roll{Key: "cards", Size: 4096}
	for rank := 0; rank < 4096; rank += 2 {
		roll.Members = append(roll.Members, member(rank, 4096, "a"))
	}
	err := roll.Err(0, noon, context.Canceled)
	for _, part := range []string{
		"ranks 1, 3, 5, 7, 9, 11, 13, 15 and 2040 more have not arrived;", "14 (a:114) and 2040 more",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("it does not say %q: %v", part, err)
		}
	}
}

package ccl

import (
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// TestGaveUp checks that ranks that still connect are told which rank gave up, and because of which rank.
func TestGaveUp(t *testing.T) {
	c := &core{rank: 1, id: CommID{7}, name: "world"}
	for culprit, want := range map[int32]int{-1: 0, 0: 0, 2: 2} {
		err := c.gaveUp(lifecycle.CallInitRank, nil, fmt.Errorf("agree: %w", &transport.NoticeError{
			Peer:   0,
			Notice: transport.Notice{Code: lifecycle.CodePeerAborted, Culprit: culprit, Detail: "it closed its end"},
		}))
		var peer *lifecycle.PeerError
		if !errors.As(err, &peer) || peer.Code != lifecycle.CodePeerAborted || peer.Rank != want || peer.Self != 1 ||
			peer.Name != "world" {
			t.Errorf("culprit %d: %v", culprit, err)
		}
	}
	if other := errors.New("no route"); !errors.Is(c.gaveUp(lifecycle.CallInitRank, nil, other), other) {
		t.Error("an error that is no peer's is changed")
	}
}

package transport_test

import (
	"context"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// TestNoticeOf checks that a rank that ends by itself names itself to the others, with a code that is no bug of
// Carillon.
func TestNoticeOf(t *testing.T) {
	peer := func(code lifecycle.Code) error { return &lifecycle.PeerError{Code: code, Rank: 3} }
	usage := func(code lifecycle.Code) error { return &lifecycle.UsageError{Code: code} }
	for _, tc := range []struct {
		err     error
		code    lifecycle.Code
		culprit int32
	}{
		{usage(lifecycle.CodeAborted), lifecycle.CodePeerAborted, 1},
		{usage(lifecycle.CodeDestroyed), lifecycle.CodePeerAborted, 1},
		{usage(lifecycle.CodeRevoked), lifecycle.CodePeerAborted, 1},
		{context.Canceled, lifecycle.CodeAbandoned, 1},
		{peer(lifecycle.CodeNotJoined), lifecycle.CodeAbandoned, 1},
		{peer(lifecycle.CodeRankDead), lifecycle.CodeRankDead, 3},
		{usage(lifecycle.CodeInvalidArgument), lifecycle.CodeInternal, 1},
		{transport.PeerClosed(2), lifecycle.CodePeerAborted, 2},
	} {
		if n := transport.NoticeOf(tc.err, 1); n.Code != tc.code || n.Culprit != tc.culprit {
			t.Errorf("%v: %v of rank %d, want %v of rank %d", tc.err, n.Code, n.Culprit, tc.code, tc.culprit)
		}
	}
}

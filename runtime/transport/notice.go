package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// MaxDetail is the most bytes of a Notice's Detail that a transport must carry. A longer Detail is cut.
const MaxDetail = 400

// MaxNotice is the most bytes that AppendNotice adds.
const MaxNotice = noticeHead + MaxDetail

const noticeHead = 2 + 2 + 4 + 8

// Notice tells the other ranks that a rank gives up on a communicator, and why.
type Notice struct {
	Code    lifecycle.Code // CodePeerAborted, CodeAbandoned, CodeMismatch, CodeRankDead, or CodeInternal
	Culprit int32          // the rank at fault, as far as the sender knows; -1 if none; see InParent
	Passed  uint64         // number of the last collective that the sender completed; 0 for none
	Detail  string         // at most MaxDetail bytes, for humans
}

// InParent returns the Notice of a rank that gives up before it has a number in the new communicator: its culprit is a
// rank of the parent communicator, encoded below -1.
func (n Notice) InParent() Notice {
	n.Culprit = -2 - max(n.Culprit, -1)
	return n
}

// ParentCulprit returns the culprit of a Notice made by InParent.
func (n Notice) ParentCulprit() (rank int, ok bool) { return int(-2 - n.Culprit), n.Culprit < -1 }

// NoticeOf returns the Notice of rank self when it gives up because of err.
func NoticeOf(err error, self int) Notice {
	n := Notice{Code: lifecycle.CodeOf(err), Culprit: int32(self), Detail: err.Error()}
	if told, ok := errors.AsType[*NoticeError](err); ok {
		n = told.Notice
		if n.Passed = 0; n.Culprit == -1 {
			n.Culprit = int32(told.Peer)
		}
		return n
	}
	if usage, ok := errors.AsType[*lifecycle.UsageError](err); ok && usage.Detail != "" {
		n.Detail = usage.Detail
	}
	peer, ok := errors.AsType[*lifecycle.PeerError](err)
	if ok && peer.Detail != "" {
		n.Detail = peer.Detail
	}
	switch {
	case slices.Contains([]lifecycle.Code{
		lifecycle.CodeAborted, lifecycle.CodeRevoked, lifecycle.CodeDestroyed, lifecycle.CodeUnfinished,
	}, n.Code): // another call on this rank ended the communicator
		n.Code = lifecycle.CodePeerAborted
	case n.Code == lifecycle.CodeCanceled:
		n.Code = lifecycle.CodeAbandoned
		if ok && peer.Rank >= 0 {
			n.Detail = fmt.Sprintf("its context was canceled while it waited for rank %d", peer.Rank)
		}
	case n.Code == lifecycle.CodeTimeout || n.Code == lifecycle.CodeNotJoined: // this rank has waited long enough
		n.Code = lifecycle.CodeAbandoned
		if ok && peer.Rank >= 0 {
			n.Detail = fmt.Sprintf("its context ended while it waited for rank %d; find what that rank is doing, or "+
				"give it more time", peer.Rank)
		}
	case ok:
		n.Culprit = int32(peer.Rank)
	default:
		n.Code = lifecycle.CodeInternal
	}
	return n
}

// LossOf returns the loss of a rank with which the caller ended ctx, a *lifecycle.PeerError; nil if it did not. A rank
// that gives up for this reason returns the loss, and tells the others of it, rather than of a wait that ended.
func LossOf(ctx context.Context) error {
	if lost, ok := errors.AsType[*lifecycle.PeerError](context.Cause(ctx)); ok {
		return lost
	}
	return nil
}

// NoticeError is the error of a connection whose peer sent a Notice, or closed its end.
type NoticeError struct {
	Peer   int
	Notice Notice
}

// Error describes the peer's notice, for humans.
func (e *NoticeError) Error() string {
	s := fmt.Sprintf("rank %d gave up (%v)", e.Peer, e.Notice.Code)
	if culprit := e.Culprit(); culprit != e.Peer {
		s += fmt.Sprintf(" because of rank %d", culprit)
	}
	if e.Notice.Detail != "" {
		s += ": " + e.Notice.Detail
	}
	return s
}

// Culprit returns the rank at fault: the peer itself, unless its notice names another one.
func (e *NoticeError) Culprit() int {
	if e.Notice.Culprit >= 0 {
		return int(e.Notice.Culprit)
	}
	return e.Peer
}

// PeerClosed returns the error of a connection whose peer closed its end in order, once everything that the peer had
// sent was read.
func PeerClosed(peer int) *NoticeError {
	return &NoticeError{Peer: peer, Notice: Notice{
		Code: lifecycle.CodePeerAborted, Culprit: int32(peer), Detail: "it closed its end of the communicator",
	}}
}

// AppendNotice appends the encoding of n that the transports use between processes.
func AppendNotice(b []byte, n Notice) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(n.Code))
	b = binary.LittleEndian.AppendUint32(b, uint32(n.Culprit))
	b = binary.LittleEndian.AppendUint64(b, n.Passed)
	whole := n.Detail[:min(len(n.Detail), MaxDetail)]
	return wire.AppendBytes(b, strings.ToValidUTF8(whole, "")) // without a partial character at its end
}

// DecodeNotice decodes what AppendNotice wrote. It is safe on any input.
func DecodeNotice(b []byte) (Notice, error) {
	r := wire.NewReader(b)
	n := Notice{Code: lifecycle.Code(r.Uint16()), Culprit: int32(r.Uint32()), Passed: r.Uint64()}
	n.Detail = r.Text(MaxDetail)
	if err := r.Err(); err != nil {
		return Notice{}, fmt.Errorf("notice: %w", err)
	}
	return n, nil
}

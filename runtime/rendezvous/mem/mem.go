// Package mem is the rendezvous of ranks that live in one process, as goroutines: a shared [Meeting], which package tcp
// opens to other processes.
package mem

import (
	"bytes"
	"context"
	"slices"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// Rendezvous is one rank's side of a Meeting.
type Rendezvous struct {
	meeting *Meeting
	as      rendezvous.Member // Was and Without of this rank
}

var _ rendezvous.Rendezvous = (*Rendezvous)(nil)

// Rank returns the rendezvous for one more rank of this process.
func (m *Meeting) Rank() *Rendezvous { return &Rendezvous{meeting: m} }

// Again is Rank for a rank of an earlier communicator: was is its rank there, and without names the ranks there that
// are left out.
func (m *Meeting) Again(was int, without string) *Rendezvous {
	return &Rendezvous{meeting: m, as: rendezvous.Member{Was: was, Without: without}}
}

// Exchange implements [rendezvous.Rendezvous].
func (r *Rendezvous) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	if err := rendezvous.CheckArgs(key, size, payload); err != nil {
		return nil, err
	}
	member := rendezvous.Here(rank, size)
	member.Was, member.Without = r.as.Was, r.as.Without
	outcomes := make(chan *Outcome, 1)
	deliver := func(o *Outcome) { outcomes <- o }
	var out *Outcome
	var cause error
	if cause = ctx.Err(); cause != nil {
		how, why := rendezvous.HowEnded(ctx)
		r.meeting.Absent(key, member, how, why, deliver)
	} else {
		r.meeting.Join(r, key, member, bytes.Clone(payload), deliver)
	}
	select {
	case out = <-outcomes:
		cause = ctx.Err()
	case <-ctx.Done():
		// The answer to Leave is the outcome: the roll, or the payloads when the last rank came at the same moment.
		cause = ctx.Err()
		how, why := rendezvous.HowEnded(ctx)
		r.meeting.Leave(r, key, rank, how, why)
		out = <-outcomes
	}
	shared, err := out.Result(key, rank, member.Arrived, cause)
	if err != nil {
		return nil, err
	}
	payloads, own := make([][]byte, size), slices.Concat(shared...)
	for i, p := range shared {
		payloads[i], own = own[:len(p):len(p)], own[len(p):]
	}
	return payloads, nil
}

// Close implements [rendezvous.Rendezvous].
func (r *Rendezvous) Close() error {
	r.meeting.Depart(r, rendezvous.Closed, "")
	return nil
}

// Package mem is the rendezvous of ranks that live in one process, as goroutines: a shared [Meeting], which package tcp
// opens to other processes.
package mem

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// Rendezvous is one rank's side of a Meeting.
type Rendezvous struct{ meeting *Meeting }

var _ rendezvous.Rendezvous = (*Rendezvous)(nil)

// Rank returns the rendezvous as one more rank of this process uses it.
func (m *Meeting) Rank() *Rendezvous { return &Rendezvous{m} }

// Exchange implements [rendezvous.Rendezvous].
func (r *Rendezvous) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	if err := rendezvous.CheckArgs(key, size, payload); err != nil {
		return nil, err
	}
	member := rendezvous.Here(rank, size)
	outcomes := make(chan *Outcome, 1)
	r.meeting.Join(r, key, member, bytes.Clone(payload), func(o *Outcome) { outcomes <- o })
	var out *Outcome
	var cause error
	select {
	case out = <-outcomes:
	case <-ctx.Done():
		// The answer to Leave is the outcome: the roll, or the payloads when the last rank came at the same moment.
		cause = ctx.Err()
		r.meeting.Leave(r, key, rank, cause.Error())
		out = <-outcomes
	}
	switch {
	case out.Failed != nil:
		return nil, out.Failed.Err(rank, member.Arrived, cause)
	case out.Refused != "":
		return nil, errors.Join(cause, &rendezvous.StaleError{Key: key, Self: rank, Detail: out.Refused})
	}
	payloads, own := make([][]byte, size), slices.Concat(out.Payloads...)
	for i, p := range out.Payloads {
		payloads[i], own = own[:len(p):len(p)], own[len(p):]
	}
	return payloads, nil
}

// Close implements [rendezvous.Rendezvous].
func (r *Rendezvous) Close() error {
	r.meeting.Depart(r, rendezvous.Closed, "")
	return nil
}

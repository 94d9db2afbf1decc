// Package mem is the rendezvous of ranks that live in one process, as goroutines: a shared table.
package mem

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/internal/gather"
)

// Rendezvous is shared by all ranks: each of them calls Exchange on the same value.
type Rendezvous struct {
	host string
	pid  int

	mu     sync.Mutex
	gather *gather.Gather
}

var _ rendezvous.Rendezvous = (*Rendezvous)(nil)

// New returns a rendezvous for size ranks of this process.
func New(size int) *Rendezvous {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return &Rendezvous{host: host, pid: os.Getpid(), gather: gather.New(size)}
}

// Exchange implements [rendezvous.Rendezvous].
func (r *Rendezvous) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	if err := rendezvous.CheckArgs(key, size, payload); err != nil {
		return nil, err
	}
	since := time.Now()
	outcomes := make(chan gather.Outcome, 1)
	member := rendezvous.Member{Rank: rank, Size: size, Host: r.host, PID: r.pid}
	r.mu.Lock()
	r.gather.Join(since, r, key, member, bytes.Clone(payload), func(o gather.Outcome) { outcomes <- o })
	r.mu.Unlock()

	var out gather.Outcome
	var cause error
	select {
	case out = <-outcomes:
	case <-ctx.Done():
		// The answer to Leave is the outcome: the roll, or the payloads when the last rank came at the same moment.
		cause = ctx.Err()
		r.mu.Lock()
		r.gather.Leave(time.Now(), r, key, rank, cause.Error())
		r.mu.Unlock()
		out = <-outcomes
	}
	switch {
	case out.Failed != nil:
		return nil, out.Failed.Err(rank, since, cause)
	case out.Refused != "":
		return nil, errors.Join(cause, &rendezvous.StaleError{Key: key, Self: rank, Detail: out.Refused})
	default:
		return clone(out.Payloads), nil
	}
}

// Close ends the rendezvous for all ranks: ranks that wait, or still come, get a *[rendezvous.StaleError].
func (r *Rendezvous) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gather.Forget("the rendezvous of this process was closed")
	return nil
}

// clone gives each rank payloads of its own, in one piece of memory.
func clone(payloads [][]byte) [][]byte {
	total := 0
	for _, p := range payloads {
		total += len(p)
	}
	all := make([]byte, 0, total)
	out := make([][]byte, len(payloads))
	for i, p := range payloads {
		all = append(all, p...)
		out[i] = all[len(all)-len(p) : len(all) : len(all)]
	}
	return out
}

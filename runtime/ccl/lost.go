package ccl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

const (
	// knockTime is how long a process is given to let a connection in. The kernel does it for a process that is stopped
	// or busy.
	knockTime = 2 * time.Second
	// knockers bounds how many processes are asked at once.
	knockers = 64
)

// Lost returns the ranks whose processes have ended, or can't be reached any more, in ascending order: those that
// Shrink is to exclude. A PeerError names the rank that an operation met; others may have died at the same time, or
// since. So Lost asks every rank's process, with a connection to where it can hold a rendezvous. It says nothing about
// a rank that aborted the communicator, or is stopped, but lives.
//
// It may be called at any time between the communicator's init and its end, above all after it has failed. It blocks
// for two seconds at most where a host does not answer, bounded by ctx. Ranks that call it at the same time may see
// different deaths: see Shrink for what comes of that.
func (c *Comm) Lost(ctx context.Context) ([]int, error) {
	if c.absent() {
		return nil, nilComm(lifecycle.CallNone)
	}
	defer runtime.KeepAlive(c)
	if err := c.life.Check(lifecycle.CallAsyncError); err != nil { // the table has no row for Lost: it is as legal
		if usage, ok := asUsage(err); ok {
			usage.Call = lifecycle.CallNone
		}
		return nil, c.refused(ctx, lifecycle.CallAsyncError, err)
	}
	if !c.start.ended() || c.links == nil {
		return nil, ErrInProgress
	}
	gone := make([]bool, c.size)
	c.lostLinks(gone)
	if err := c.knock(ctx, gone); err != nil {
		return nil, err
	}
	var lost []int
	for r, g := range gone {
		if g && r != c.rank {
			lost = append(lost, r)
		}
	}
	return lost, nil
}

// lostLinks marks the ranks of which the connections have learnt that they are dead, from the kernel or from another rank.
func (c *core) lostLinks(gone []bool) {
	for r := range gone {
		if r == c.rank {
			continue
		}
		var peer *PeerError
		if err := c.links.Lost(r); err != nil && errors.As(c.engine.Explain(err), &peer) && peer.Code == lifecycle.CodeRankDead && peer.Rank >= 0 {
			gone[peer.Rank] = true
		}
	}
}

// knock marks the ranks whose processes let no connection in. Those already marked are not asked.
func (c *core) knock(ctx context.Context, gone []bool) error {
	var wg sync.WaitGroup
	room := make(chan struct{}, knockers)
	errs := make([]error, len(gone))
	for r, meets := range c.meets {
		if meets == "" || gone[r] || r == c.rank {
			continue // of this process, known, or this rank
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			gone[r], errs[r] = silent(ctx, meets)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// silent tells whether nobody answers at an address. An error means that it can't be told.
func silent(ctx context.Context, address string) (bool, error) {
	dialer := net.Dialer{Timeout: knockTime}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	var timeout net.Error
	if deadline, bounded := ctx.Deadline(); err != nil && bounded && !time.Now().Before(deadline) {
		<-ctx.Done() // the dialer has a timer of its own for it, which may be faster
	}
	switch {
	case err == nil:
		_ = conn.Close() // it has served
		return false, nil
	case ctx.Err() != nil:
		return false, &SystemError{Code: lifecycle.CodeTimeout, Op: "ask the process at " + address, Err: context.Cause(ctx)}
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.ENETUNREACH), errors.As(err, &timeout) && timeout.Timeout():
		return true, nil
	default: // such as too many open files, which is no fault of that process
		return false, &SystemError{Code: lifecycle.CodeSystem, Op: fmt.Sprintf("ask the process at %s", address), Err: err}
	}
}

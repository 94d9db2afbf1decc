package meet

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

const (
	probeTime = 2 * time.Second // for a process, or its kernel, to let a connection in
	maxProbes = 64              // processes that are asked at once
)

// Knock asks processes whether they are there, with a connection to where they hold meetings: it marks those in gone
// that let none in. One that is marked already, or has no address, is not asked. It blocks for two seconds at most
// where a host does not answer, bounded by ctx. An error means that it can't be told of all.
func Knock(ctx context.Context, addresses []string, gone []bool) error {
	var wg sync.WaitGroup
	room := make(chan struct{}, maxProbes)
	errs := make([]error, len(addresses))
	for i, address := range addresses {
		if address == "" || gone[i] {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			gone[i], errs[i] = silent(ctx, address)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// silent tells whether nobody answers at an address. An error means that it can't be told.
func silent(ctx context.Context, address string) (bool, error) {
	dialer := net.Dialer{Timeout: probeTime}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	var timeout net.Error
	if deadline, bounded := ctx.Deadline(); err != nil && bounded && !time.Now().Before(deadline) {
		<-ctx.Done() // the dialer has a timer of its own for it, which may be faster
	}
	system := &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "ask the process at " + address, Err: err}
	switch {
	case err == nil:
		_ = conn.Close() // it has served
		return false, nil
	case ctx.Err() != nil:
		system.Code, system.Err = lifecycle.CodeOf(ctx.Err()), context.Cause(ctx)
		return false, system
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.ENETUNREACH), errors.As(err, &timeout) && timeout.Timeout():
		return true, nil
	default: // such as too many open files, which is no fault of that process
		return false, system
	}
}

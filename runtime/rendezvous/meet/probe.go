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
	probeTime = 2 * time.Second // for a process or its kernel to accept a connection
	maxProbes = 64              // connections at a time
)

// Probe finds out which processes are gone: it connects to the addresses where they serve rendezvous, and sets gone for
// each process that accepts no connection. It skips processes that are already gone or have no address. It blocks for
// at most two seconds per unreachable host, or until ctx ends. An error means that the state of some processes is
// unknown.
func Probe(ctx context.Context, addresses []string, gone []bool) error {
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
			gone[i], errs[i] = refuses(ctx, address)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// refuses tells whether no process accepts connections at an address. An error means that this is unknown.
func refuses(ctx context.Context, address string) (bool, error) {
	dialer := net.Dialer{Timeout: probeTime}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	var timeout net.Error
	if deadline, bounded := ctx.Deadline(); err != nil && bounded && !time.Now().Before(deadline) {
		<-ctx.Done() // the dialer's own timer may be faster
	}
	system := &lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "ask the process at " + address, Err: err}
	switch {
	case err == nil:
		_ = conn.Close()
		return false, nil
	case ctx.Err() != nil:
		system.Code, system.Err = lifecycle.CodeOf(ctx.Err()), context.Cause(ctx)
		return false, system
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.ENETUNREACH), errors.As(err, &timeout) && timeout.Timeout():
		return true, nil
	default: // a fault of this process, such as too many open files
		return false, system
	}
}

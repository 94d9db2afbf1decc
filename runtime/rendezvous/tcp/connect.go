package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

const (
	firstPause  = 10 * time.Millisecond // between attempts to connect, doubling
	longestWait = time.Second
	attemptTime = 5 * time.Second // for one attempt to connect and be welcomed
)

// connect returns the client's session, and makes it if there is none. Of several exchanges that start together, one
// connects and the others wait for it, each as long as its own context allows.
func (c *Client) connect(ctx context.Context, w *wait) (*session, error) {
	attempts := attempts{client: c, wait: w, since: w.since}
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, attempts.gaveUp(ctx.Err())
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	if c.session != nil { // written only with the token
		return c.session, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	defer stop()

	conn, err := attempts.run(ctx)
	if err != nil {
		return nil, err
	}
	_ = door.KeepWatch(conn, silence) // without it the loss of the host is noticed later, no more
	s := newSession(conn)
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	return s, nil
}

// attempts are the tries to reach a server.
type attempts struct {
	client  *Client
	wait    *wait
	since   time.Time
	n       int
	last    error
	unknown time.Time // since when the server says that it does not know the id
}

func (a *attempts) run(ctx context.Context) (net.Conn, error) {
	line := time.NewTimer(a.wait.beat.wait())
	defer line.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestWait) {
		conn, err := a.try(ctx)
		if err == nil {
			return conn, nil
		}
		if fatal := a.judge(ctx, err); fatal != nil {
			return nil, fatal
		}
		// Thousands of ranks start together; they need not connect at the same moments.
		again := time.NewTimer(pause/2 + rand.N(pause))
		for waiting := true; waiting; {
			select {
			case <-again.C:
				waiting = false
			case <-line.C:
				line.Reset(a.wait.beat.wait())
				a.log()
			case <-ctx.Done():
				again.Stop()
				return nil, a.gaveUp(context.Cause(ctx))
			}
		}
	}
}

func (a *attempts) try(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	id := a.client.id
	conn, err := a.client.config.dial(ctx, id.Address())
	if err != nil {
		return nil, err
	}
	return conn, door.Greet(ctx, conn, door.Hello{Room: door.Room(lifecycle.RootCommID(id)), Secret: id.Secret()})
}

// judge records a failed attempt, and returns an error if it makes no sense to try again.
func (a *attempts) judge(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		// The attempt was cut short, so what it met says little; what the one before met may say more.
		if a.n == 0 || a.last == nil {
			a.n, a.last = a.n+1, err
		}
		return a.gaveUp(cause)
	}
	a.n, a.last = a.n+1, err

	switch {
	case errors.Is(err, door.ErrSecret):
		return a.refused(lifecycle.CodeAuth)
	case errors.Is(err, door.ErrVersion):
		return a.refused(lifecycle.CodeMismatch)
	case !errors.Is(err, door.ErrUnknown):
		a.unknown = time.Time{}
	case a.unknown.IsZero():
		a.unknown = time.Now()
	case time.Since(a.unknown) >= a.client.config.UnknownTime:
		return &rendezvous.StaleError{
			Key: a.wait.join.key, Self: a.wait.join.rank,
			Detail: fmt.Sprintf("the unique id is not known at %s: it belongs to another job, or its server has "+
				"ended or forgotten it; give all ranks of a job the same job name and secret", a.client.id.Address()),
		}
	}
	return nil
}

func (a *attempts) refused(code lifecycle.Code) error {
	return &lifecycle.PeerError{
		Code: code, Rank: a.client.config.ServerRank, Self: a.wait.join.rank, Comm: lifecycle.RootCommID(a.client.id),
		Detail: "rendezvous at " + a.client.id.Address() + ": " + a.last.Error(),
	}
}

// gaveUp is the error of a rank that found no server, or was closed while it looked for one.
func (a *attempts) gaveUp(cause error) error {
	roll := rendezvous.Roll{Key: a.wait.join.key, Size: a.wait.join.size}
	return roll.Err(a.wait.join.rank, a.wait.since, &rendezvous.UnreachableError{
		Address: a.client.id.Address(), Rank: a.client.config.ServerRank, Self: a.wait.join.rank,
		Attempts: a.n, Since: a.since, Context: cause, Last: a.last,
	})
}

func (a *attempts) log() {
	if a.client.mayLog() {
		a.client.config.Log.Warn("rank has not reached the rendezvous yet",
			"key", a.wait.join.key, "comm_rank", a.wait.join.rank, "size", a.wait.join.size,
			"address", a.client.id.Address(),
			"waited", words.Round(time.Since(a.since)), "attempts", a.n, "last", a.last)
	}
}

package ncclras

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotQuiet means that communicators are being created or destroyed, during which NCCL isn't asked.
var ErrNotQuiet = errors.New("ncclras: communicators are being created or destroyed; NCCL isn't asked meanwhile")

// ErrTooSoon means that the last status was asked for less than interval ago.
var ErrTooSoon = errors.New("ncclras: a status was asked for a moment ago")

const (
	// interval is the least time between two statuses, and between two attempts to monitor.
	interval = 5 * time.Second
	// timeout is how long NCCL waits for the answers of its other processes.
	timeout = 5 * time.Second
	// maxBytes is how much of a status is read. A rank of a communicator takes some 700 bytes.
	maxBytes = 64 << 20
)

// Client asks NCCL's RAS on behalf of a whole node. Its methods may be called from any goroutine; one at a time has the
// connection.
type Client struct {
	cfg     Config
	slot    chan struct{} // full while a goroutine of this process has the connection; waiters get it in order
	waiting atomic.Int32  // calls of Status that wait for the slot
	wake    chan struct{} // wakes Monitor when a Status waits

	mu    sync.Mutex
	asked time.Time // the last status; zero: there was none

	handshake, timeout, extra, interval, retry time.Duration // others in tests
	maxBytes                                   int           // likewise
}

// New makes a Client, which asks nothing yet. The error says what is wrong with the configuration; it is a *BugError or
// ErrOld if this version of NCCL must not be asked.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := forbidden(cfg.Version, cfg.Ranks, cfg.Accept); err != nil {
		return nil, err
	}
	return &Client{
		cfg: cfg, slot: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		handshake: handshakeTime, timeout: timeout, extra: extraTime, interval: interval, retry: interval,
		maxBytes: maxBytes,
	}, nil
}

// take takes the node's connection, until release.
func (c *Client) take(ctx context.Context) (nodeLock, error) {
	select {
	case c.slot <- struct{}{}:
	case <-ctx.Done():
		return nodeLock{}, context.Cause(ctx)
	}
	lock, err := lockNode(c.cfg.Dir)
	if err != nil {
		<-c.slot
	}
	return lock, err
}

func (c *Client) release(lock nodeLock) {
	lock.release()
	<-c.slot
}

// Status asks for the state of all communicators. It blocks until NCCL has answered, for at most eleven seconds, or ctx
// ends. A running Monitor yields the connection and resumes afterwards.
//
// The error is ErrNotQuiet, ErrTooSoon, ErrHeld, a *RefusedError, or says why nothing was learnt. A status that broke
// off is returned with what came before: see Status.Cut.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	if !c.cfg.Quiet() {
		return nil, ErrNotQuiet
	}
	if err := c.soon(); err != nil {
		return nil, err
	}
	c.waiting.Add(1)
	select {
	case c.wake <- struct{}{}:
	default: // it will look
	}
	lock, err := c.take(ctx)
	c.waiting.Add(-1)
	if err != nil {
		return nil, err
	}
	defer c.release(lock)
	if err := c.soon(); err != nil {
		return nil, err // somebody else was first in line
	}
	k, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer k.close()
	return c.status(k)
}

// soon returns ErrTooSoon if the last status was asked for less than an interval ago.
func (c *Client) soon() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.asked) < c.interval {
		return ErrTooSoon
	}
	return nil
}

// status asks for it on a connection.
func (c *Client) status(k *conn) (*Status, error) {
	for _, command := range []string{fmt.Sprintf("TIMEOUT %d", c.timeout/time.Second), "SET FORMAT json"} {
		if err := k.order(c.handshake, command); err != nil {
			return nil, err
		}
	}
	if !c.cfg.Quiet() {
		return nil, ErrNotQuiet
	}
	c.mu.Lock()
	c.asked = time.Now()
	c.mu.Unlock()
	if err := k.send(c.timeout+c.extra, "STATUS"); err != nil {
		return nil, fmt.Errorf("ncclras: STATUS: %w", err)
	}
	return ParseJSON(&bounded{from: k.in, left: c.maxBytes})
}

// bounded reads up to left bytes, and then fails.
type bounded struct {
	from io.Reader
	left int
}

var (
	errSize = errors.New("it is too long")
	errTime = errors.New("it did not end in time")
)

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errSize
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errTime
	}
	return n, err
}

package ncclras

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrNotQuiet means that communicators are being created or destroyed, during which NCCL isn't asked.
var ErrNotQuiet = errors.New("ncclras: communicators are being created or destroyed; NCCL isn't asked meanwhile")

// ErrTooSoon means that the last status ended less than interval ago.
var ErrTooSoon = errors.New("ncclras: a status was asked for a moment ago")

const (
	// interval is the least time between two statuses, and between two attempts to monitor.
	interval = 5 * time.Second
	// timeout is how long NCCL waits for the answers of its other processes.
	timeout = 5 * time.Second
	// maxBytes is how much of a status is read. A rank of a communicator takes some 700 bytes.
	maxBytes = 64 << 20
)

// Client asks NCCL's RAS on behalf of a whole node. It is for one goroutine.
type Client struct {
	cfg  Config
	next time.Time   // when a status may be asked for again
	on   func(Event) // takes the events of Listen; nil: nobody listens, or NCCL has none
	rest func()      // ends the Monitor that runs for Listen, and waits for its end

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
		cfg: cfg, rest: func() {},
		handshake: handshakeTime, timeout: timeout, extra: extraTime, interval: interval, retry: interval,
		maxBytes: maxBytes,
	}, nil
}

// Listen runs Monitor in the background until Close, except while Status has the connection.
func (c *Client) Listen(on func(Event)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.on, c.rest = on, func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		if err := c.Monitor(ctx, on); err != nil {
			c.on = nil
		}
	}()
}

// Close ends Listen.
func (c *Client) Close() { c.rest() }

// Status asks for the state of all communicators. It blocks until NCCL has answered, for at most eleven seconds, or ctx
// ends.
//
// The error is ErrNotQuiet, ErrTooSoon, ErrHeld, a *RefusedError, or says why nothing was learnt. A status that broke
// off is returned with what came before: see Status.Cut.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	if !c.cfg.Quiet() {
		return nil, ErrNotQuiet
	}
	if time.Now().Before(c.next) {
		return nil, ErrTooSoon
	}
	c.rest()
	s, err := c.ask(ctx)
	if !errors.Is(err, ErrNotQuiet) {
		c.next = time.Now().Add(c.interval)
	}
	if c.on != nil {
		c.Listen(c.on)
	}
	return s, err
}

// ask takes the node's connection, and asks for a status.
func (c *Client) ask(ctx context.Context) (*Status, error) {
	release, err := lockNode(c.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer release()
	k, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer k.close()
	for _, command := range []string{fmt.Sprintf("TIMEOUT %d", c.timeout/time.Second), "SET FORMAT json"} {
		if err := k.order(c.handshake, command); err != nil {
			return nil, err
		}
	}
	if !c.cfg.Quiet() {
		return nil, ErrNotQuiet
	}
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

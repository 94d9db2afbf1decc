package sse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
)

// maxID is the longest id that is looked at.
const maxID = 128

// Handler answers GET with the stream of events. It is a bus.Sink: requests are answered with 503 but while it runs.
type Handler struct {
	cfg     Config
	counts  bus.Counts
	dropped atomic.Uint64 // of clients that are gone
	begun   chan struct{} // closed by Run
	begin   sync.Once

	mu      sync.Mutex
	running context.Context //nolint:containedctx // of Run, whose end ends all requests
	clients map[*bus.Subscription]struct{}
	idle    sync.WaitGroup // the clients
}

// New makes a Handler.
func New(cfg Config) (*Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Handler{cfg: cfg.complete(), begun: make(chan struct{}), clients: map[*bus.Subscription]struct{}{}}, nil
}

// Name implements bus.Sink.
func (*Handler) Name() string { return "sse" }

// Stats implements bus.Sink. An event counts once for each client.
func (h *Handler) Stats() bus.Stats {
	dropped := h.dropped.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.clients {
		dropped += s.Dropped()
	}
	return h.counts.Stats(dropped)
}

// Clients is how many clients listen.
func (h *Handler) Clients() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// Begun is closed once Run lets clients in: wait for it before the address is made known.
func (h *Handler) Begun() <-chan struct{} { return h.begun }

// Run implements bus.Sink: it lets clients in until ctx ends, and waits until they are gone. They go at once. When the
// Bus is closed, they go when they have got what was queued for them.
func (h *Handler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.mu.Lock()
	h.running = ctx
	h.mu.Unlock()
	h.begin.Do(func() { close(h.begun) })
	select {
	case <-ctx.Done():
	case <-h.cfg.Bus.Done(): // each client goes when it has got what is queued
	}
	h.mu.Lock()
	h.running = nil
	h.mu.Unlock()
	h.idle.Wait()
	return nil
}

// enter lets a client in; nil if there is no room. The context ends with Run's.
func (h *Handler) enter(cfg bus.SubscriptionConfig) (*bus.Subscription, context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == nil || len(h.clients) >= h.cfg.MaxClients {
		return nil, nil
	}
	s := h.cfg.Bus.Attach(cfg)
	h.clients[s] = struct{}{}
	h.idle.Add(1)
	return s, h.running
}

func (h *Handler) leave(s *bus.Subscription) {
	s.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, s)
	h.dropped.Add(s.Dropped())
	h.idle.Done()
}

// ServeHTTP implements http.Handler. It returns when the client goes, is dropped, or Run ends.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "events are read with GET", http.StatusMethodNotAllowed)
		return
	}
	asked, after, err := parseQuery(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(h.cfg.WriteTimeout)); err != nil {
		// Without deadlines a client that doesn't read would hold its goroutine for ever.
		http.Error(w, "events can't be streamed here: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s, running := h.enter(bus.SubscriptionConfig{Filter: asked, Queue: h.cfg.Queue, After: after})
	if s == nil {
		w.Header().Set("Retry-After", strconv.Itoa(int((h.cfg.Retry+time.Second-1)/time.Second)))
		http.Error(w, "no more listeners are taken now", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(s)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(running, func() {
		defer close(interrupted)
		cancel()
		_ = out.SetWriteDeadline(time.Now()) // ends a write that is under way
	})
	defer func() {
		if !stop() {
			<-interrupted // w is the server's again when this returns
		}
	}()
	c := client{h: h, ctx: ctx, out: out, w: w}
	if c.greet() == nil {
		c.stream(s)
	}
}

type client struct {
	h   *Handler
	ctx context.Context //nolint:containedctx // of the request and of Run; the client lives as long
	w   http.ResponseWriter
	out *http.ResponseController
	buf []byte
}

func (c *client) greet() error {
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // or nginx keeps events back
	header.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(http.StatusOK)
	return c.send(fmt.Appendf(c.buf[:0], "retry: %d\n\n", c.h.cfg.Retry.Milliseconds()))
}

func (c *client) stream(s *bus.Subscription) {
	for {
		wait, cancel := context.WithTimeout(c.ctx, c.h.cfg.Heartbeat)
		ev, err := s.Next(wait)
		cancel()
		switch {
		case err == nil:
			if c.event(ev) != nil {
				return
			}
		case errors.Is(err, bus.ErrClosed) || c.ctx.Err() != nil:
			return
		default:
			if c.send(append(c.buf[:0], ": heartbeat\n\n"...)) != nil {
				return
			}
		}
	}
}

func (c *client) event(ev *bus.Event) error {
	if !ev.Notice() && !c.h.cfg.Filter.Match(ev) {
		return nil
	}
	frame, err := appendFrame(c.buf[:0], ev)
	c.buf = frame[:0]
	if err == nil {
		err = c.send(frame)
	}
	switch {
	case ev.Notice():
	case err != nil:
		c.h.counts.Failed(1)
	default:
		c.h.counts.Pushed(1)
	}
	return err
}

// send writes and flushes, for as long as the write timeout allows.
func (c *client) send(frame []byte) error {
	if err := c.out.SetWriteDeadline(time.Now().Add(c.h.cfg.WriteTimeout)); err != nil {
		return err
	}
	if c.ctx.Err() != nil { // after the deadline is set, or the end of Run, which sets it too, could be missed
		return context.Cause(c.ctx)
	}
	if _, err := c.w.Write(frame); err != nil {
		return err
	}
	return c.out.Flush()
}

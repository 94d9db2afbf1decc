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

const (
	// heartbeat is the longest silence; a comment ends it, by which both sides see that the connection lives.
	heartbeat = 15 * time.Second
	// writeTimeout is how long a client may take no byte before it is dropped.
	writeTimeout = 10 * time.Second
	// retry is how long clients are told to wait before they connect again.
	retry = 3 * time.Second
	// maxID is the longest id that is looked at.
	maxID = 128
)

// Handler answers GET with the stream of events. It is a bus.Sink: except while Run runs, requests are answered with
// 503.
type Handler struct {
	bus     *bus.Bus
	counts  bus.Counts
	dropped atomic.Uint64 // of clients that are gone
	begun   chan struct{} // closed by Run

	mu      sync.Mutex
	running context.Context //nolint:containedctx // of Run, whose end ends all requests
	clients map[*bus.Subscription]struct{}
	idle    sync.WaitGroup // the clients
}

// New makes a Handler for a Bus's events. The server bounds the number of clients.
func New(b *bus.Bus) *Handler {
	return &Handler{bus: b, begun: make(chan struct{}), clients: map[*bus.Subscription]struct{}{}}
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

// Clients is the number of connected clients.
func (h *Handler) Clients() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// Begun is closed once Run lets clients in. Wait for it before publishing the address.
func (h *Handler) Begun() <-chan struct{} { return h.begun }

// Run implements bus.Sink. It lets clients in until ctx ends, and then disconnects them at once. If the Bus is closed,
// clients first get what is queued for them.
func (h *Handler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.mu.Lock()
	h.running = ctx
	h.mu.Unlock()
	close(h.begun)
	select {
	case <-ctx.Done():
	case <-h.bus.Done(): // each client ends when it has got what is queued
	}
	h.mu.Lock()
	h.running = nil
	h.mu.Unlock()
	h.idle.Wait()
	return nil
}

// enter lets a client in; nil if Run has not begun, or has ended. The context ends with Run's.
func (h *Handler) enter(asked bus.Filter, after string) (*bus.Subscription, context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == nil {
		return nil, nil
	}
	s := h.bus.Attach(asked, after)
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
	if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		// Without deadlines a client that doesn't read would hold its goroutine for ever.
		http.Error(w, "events can't be streamed here: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s, running := h.enter(asked, after)
	if s == nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(retry/time.Second)))
		http.Error(w, "no listeners are taken now", http.StatusServiceUnavailable)
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
			<-interrupted // w is the server's again when ServeHTTP returns
		}
	}()
	header := w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // or nginx keeps events back
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	h.stream(s, &client{ctx: ctx, out: out, w: w})
}

type client struct {
	ctx context.Context //nolint:containedctx // of the request and of Run; the client lives as long
	w   http.ResponseWriter
	out *http.ResponseController
}

// stream sends a client its events until it disconnects, is dropped, or the Bus is closed and nothing is queued.
func (h *Handler) stream(s *bus.Subscription, c *client) {
	var frame []byte
	for err := c.send(fmt.Appendf(nil, "retry: %d\n\n", retry.Milliseconds())); err == nil; {
		wait, cancel := context.WithTimeout(c.ctx, heartbeat)
		ev, none := s.Next(wait)
		cancel()
		switch {
		case none == nil:
			if frame, err = appendFrame(frame[:0], ev); err == nil {
				err = c.send(frame)
			}
			h.counts.Delivered(ev, err)
		case errors.Is(none, bus.ErrClosed) || c.ctx.Err() != nil:
			return
		default:
			err = c.send([]byte(": heartbeat\n\n"))
		}
	}
}

func (c *client) send(frame []byte) error {
	if err := c.out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if c.ctx.Err() != nil { // checked after setting the deadline, which the end of Run sets too
		return context.Cause(c.ctx)
	}
	if _, err := c.w.Write(frame); err != nil {
		return err
	}
	return c.out.Flush()
}

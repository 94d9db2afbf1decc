package tcp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

// leaveTime is how long an exchange that was given up waits for the roll from the server.
const leaveTime = time.Second

// Config is what a server and its clients may be told. Its zero value is right for most.
type Config struct {
	// Log gets a line while this rank, or any rank of this server, waits: after 5, 10, 20 … seconds. Default:
	// slog.Default.
	Log *slog.Logger

	// Host and PID tell people where this rank runs. Default: this process's.
	Host string
	PID  int

	// ServerRank is the rank in whose process the server runs, named when the server is not there. Default: 0.
	ServerRank int

	// UnknownTime is how long a server that does not know the unique id is given to learn of it before the id is taken
	// for stale. A server may be asked between its Listen and its Serve, and the server of a job's last run may linger.
	// Default: 5 s.
	UnknownTime time.Duration

	// dial replaces the network in tests.
	dial func(ctx context.Context, address string) (net.Conn, error)
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Host == "" {
		if host, err := os.Hostname(); err == nil {
			c.Host = host
		} else {
			c.Host = "unknown-host"
		}
	}
	c.Host = c.Host[:min(len(c.Host), maxHost)]
	if c.PID <= 0 {
		c.PID = os.Getpid()
	}
	if c.UnknownTime <= 0 {
		c.UnknownTime = 5 * time.Second
	}
	if c.dial == nil {
		dialer := &net.Dialer{KeepAlive: -1} // see door.KeepWatch
		c.dial = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	return c
}

// Client is one rank's side of the rendezvous of one unique id.
type Client struct {
	id     lifecycle.UniqueID
	config Config
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	connecting chan struct{} // holds a token while somebody connects
	mu         sync.Mutex
	session    *session // nil until connected
	lastLine   time.Time
}

var _ rendezvous.Rendezvous = (*Client)(nil)

// errClosed is why an exchange ends when its own rank closes the client.
var errClosed = &lifecycle.UsageError{Code: lifecycle.CodeInvalidUsage, Detail: "this rank closed its rendezvous"}

// Dial returns the rendezvous of id, at id's address. It does not touch the network: the first Exchange connects, and
// tries again, ever less often, until its context ends. Use one client per rank for all exchanges of an id, and close
// it.
func Dial(id lifecycle.UniqueID, config Config) *Client {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Client{id: id, config: config.withDefaults(), ctx: ctx, cancel: cancel, connecting: make(chan struct{}, 1)}
}

// Exchange implements [rendezvous.Rendezvous]. It returns within a second of ctx's end. Besides the interface's errors,
// it returns a *[lifecycle.PeerError] with [lifecycle.CodeAuth] when the server does not share the id's secret.
func (c *Client) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	if err := rendezvous.CheckArgs(key, size, payload); err != nil {
		return nil, err
	}
	now := time.Now()
	w := &wait{
		client: c,
		since:  now,
		beat:   beat{since: now},
		join:   join{rank: rank, size: size, pid: c.config.PID, host: c.config.Host, key: key, payload: payload},
	}
	s, err := c.connect(ctx, w)
	if err != nil {
		return nil, err
	}
	return w.run(ctx, s)
}

// Close implements [rendezvous.Rendezvous]. It returns within a second, whatever the server does.
func (c *Client) Close() error {
	c.cancel(errClosed)
	c.connecting <- struct{}{} // an attempt to connect gives up now; the next one finds the client closed
	<-c.connecting
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	if s != nil {
		s.bye()
	}
	return nil
}

type wait struct {
	client *Client
	since  time.Time
	join   join
	known  *rendezvous.Roll // the last that was heard
	beat   beat
}

// run joins the exchange over a session and waits for its end.
func (w *wait) run(ctx context.Context, s *session) ([][]byte, error) {
	replies := s.open(&w.join)
	defer s.close(w.join.stream)

	line := time.NewTimer(w.beat.wait())
	defer line.Stop()
	var (
		ended   error            // this rank's own reason to stop waiting
		expired <-chan time.Time // then, how long to wait for the server's word
		done    = ctx.Done()
	)
	for {
		select {
		case r := <-replies:
			if r.kind == kindRoll {
				w.known = r.roll
				w.known.Key = w.join.key
				w.log()
				continue
			}
			return w.end(r, ended)
		case <-line.C:
			line.Reset(w.beat.wait())
			s.ask(&ask{stream: w.join.stream, key: w.join.key})
		case <-done:
			done, ended = nil, ctx.Err()
			s.leave(&leave{rank: w.join.rank, key: w.join.key, reason: reason(ctx, w.since)})
			timer := time.NewTimer(leaveTime)
			defer timer.Stop()
			expired = timer.C
		case <-expired:
			return nil, w.alone().Err(w.join.rank, w.since, ended)
		case <-s.ended:
			// An answer that came before the end counts.
			select {
			case r := <-replies:
				if r.kind != kindRoll {
					return w.end(r, ended)
				}
			default:
			}
			if w.client.ctx.Err() != nil {
				return nil, w.alone().Err(w.join.rank, w.since, errors.Join(ended, context.Cause(w.client.ctx)))
			}
			return nil, w.serverLost(s.err, ended)
		}
	}
}

// reason tells the other ranks why this one gives up.
func reason(ctx context.Context, since time.Time) string {
	after := " after " + words.Round(time.Since(since)).String()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "its context expired" + after
	}
	return "its context was canceled" + after
}

// end turns the server's last word into Exchange's.
func (w *wait) end(r reply, ended error) ([][]byte, error) {
	switch r.kind {
	case kindResult:
		if len(r.payloads) == w.join.size {
			return r.payloads, nil
		}
		return nil, &lifecycle.SystemError{
			Code: lifecycle.CodeInternal, Op: "rendezvous: a result of another size than asked for",
		}
	case kindFailed:
		r.roll.Key = w.join.key
		return nil, r.roll.Err(w.join.rank, w.since, ended)
	default:
		return nil, errors.Join(&rendezvous.StaleError{Key: w.join.key, Self: w.join.rank, Detail: r.refused}, ended)
	}
}

// alone is the roll when the server says nothing: what it said last, or this rank.
func (w *wait) alone() *rendezvous.Roll {
	if w.known != nil {
		return w.known
	}
	return &rendezvous.Roll{Key: w.join.key, Size: w.join.size, Members: []rendezvous.Member{{
		Rank: w.join.rank, Size: w.join.size, Host: w.join.host, PID: w.join.pid, Arrived: w.since,
	}}}
}

// serverLost is the end of the connection to the server: the death of the rank that runs it, most likely.
func (w *wait) serverLost(why, ended error) error {
	roll, server := w.alone(), w.client.config.ServerRank
	how, detail := departure(why)
	address := w.client.id.Address()
	if server < 0 || server >= w.join.size || server == w.join.rank {
		return roll.Err(w.join.rank, w.since, errors.Join(ended,
			&lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "rendezvous at " + address, Err: why}))
	}
	if detail == "" {
		detail = "it served the rendezvous at " + address
	}
	i := 0
	for i < len(roll.Members) && roll.Members[i].Rank != server {
		i++
	}
	if i == len(roll.Members) {
		roll.Members = append(roll.Members, rendezvous.Member{Rank: server, Size: w.join.size, Host: address})
		roll.Sort()
		for i = 0; roll.Members[i].Rank != server; i++ {
		}
	}
	m := &roll.Members[i]
	m.Left, m.How, m.Detail = time.Now(), how, detail
	return roll.Err(w.join.rank, w.since, ended)
}

// log writes the waiting line, unless another exchange of this client has just written one.
func (w *wait) log() {
	if w.client.mayLog() {
		w.client.config.Log.Warn("rank waits at the rendezvous",
			append(waitingAttrs(w.known, w.since), "comm_rank", w.join.rank, "address", w.client.id.Address())...)
	}
}

func (c *Client) mayLog() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.lastLine) < firstLine {
		return false
	}
	c.lastLine = time.Now()
	return true
}

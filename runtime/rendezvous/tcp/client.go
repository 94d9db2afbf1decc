package tcp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
)

const (
	leaveTime = time.Second      // to wait for the server's roll after leaving an exchange
	joinTime  = 10 * time.Second // for writing a join or an ask
	firstLine = 2 * time.Second  // until a waiting rank logs a line; later lines come at doubled times
	maxLine   = 5 * time.Minute  // between two lines
)

// Config has the options of a client. The zero value is a good default.
type Config struct {
	// Log gets a line while this rank waits: after 2, 4, 8 … seconds. Default: slog.Default.
	Log *slog.Logger

	// ServerRank is the rank in whose process the server runs, for errors. Default: 0.
	ServerRank int

	// Serves says that the server ran when this rank learned its address: if no process listens there, the server's
	// process has ended. Otherwise it may still come.
	Serves bool

	// UnknownTime is how long to retry if the server doesn't know the unique id, before the id counts as stale. A
	// client may come before Serve, or reach the server of the job's last run. Default: 5 s.
	UnknownTime time.Duration

	// Was and Without are for a rank that meets others again: see rendezvous.Member.
	Was     int
	Without string

	// Wire is the least protection of the connection; a server that asks for more gets it.
	Wire door.Wire

	host string                                                      // replaces this host's name in tests, and
	pid  int                                                         // this process's id
	dial func(ctx context.Context, address string) (net.Conn, error) // replaces the network in tests
}

// Client is one rank's part in the rendezvous of one unique id.
type Client struct {
	id     lifecycle.UniqueID
	config Config
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	turn    chan struct{} // holds a token during an exchange or Close; guards the fields below
	session *session      // nil until connected
	streams uint64        // exchanges so far
}

var _ rendezvous.Rendezvous = (*Client)(nil)

// errClosed is why an exchange ends when its own rank closes the client.
var errClosed = &lifecycle.UsageError{Code: lifecycle.CodeInvalidUsage, Detail: "this rank closed its rendezvous"}

// Dial returns the rendezvous of id, at id's address. It doesn't use the network: the first Exchange connects, and
// retries with growing pauses until its context ends. Use one client per rank and id, and close it.
func Dial(id lifecycle.UniqueID, config Config) *Client {
	config.Log = cmp.Or(config.Log, slog.Default())
	config.UnknownTime = cmp.Or(config.UnknownTime, 5*time.Second)
	c := &Client{id: id, config: config, turn: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Exchange implements [rendezvous.Rendezvous]. It returns within two seconds of ctx's end. Besides the interface's
// errors, it returns a *[lifecycle.PeerError] with [lifecycle.CodeAuth] when the server does not share the id's secret.
func (c *Client) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	if err := rendezvous.CheckArgs(key, size, payload); err != nil {
		return nil, err
	}
	either, cancel := context.WithCancelCause(ctx) // of the caller's context and the client's
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	w := &wait{
		client: c, next: firstLine,
		join: request{kind: kindJoin, member: rendezvous.Here(rank, size), key: key, payload: payload},
	}
	w.deadline, _ = ctx.Deadline()
	me := &w.join.member
	me.Was, me.Without = c.config.Was, c.config.Without
	if c.config.host != "" {
		me.Host, me.PID = c.config.host, c.config.pid
	}
	me.Host = me.Host[:min(len(me.Host), maxHost)]
	select {
	case c.turn <- struct{}{}: // also with a context that has ended
	default:
		select {
		case c.turn <- struct{}{}:
		case <-either.Done():
			return nil, w.err(w.roll(), context.Cause(either))
		}
	}
	defer func() { <-c.turn }()
	if closed := context.Cause(c.ctx); closed != nil {
		return nil, closed
	}
	c.streams++
	w.join.stream = c.streams
	if c.session == nil {
		conn, err := w.connect(either)
		if err != nil && either.Err() != nil { // once more, to tell the others that this rank won't come
			brief, cancel := context.WithTimeout(c.ctx, leaveTime)
			defer cancel()
			conn, _ = door.Dial(brief, c.id.Address(), w.hello(), func(err error) error { return err })
		}
		if conn == nil {
			return nil, err
		}
		c.session = newSession(conn)
	}
	return w.run(ctx, c.session)
}

// Close implements [rendezvous.Rendezvous]. It returns within a second, whatever the server does.
func (c *Client) Close() error {
	c.cancel(errClosed)
	c.turn <- struct{}{} // an exchange in progress ends now
	defer func() { <-c.turn }()
	if c.session != nil {
		c.session.bye()
	}
	return nil
}

// wait is an exchange in progress.
type wait struct {
	client *Client
	join   request
	known  *rendezvous.Roll // the last one from the server
	next   time.Duration    // the waiting time at which the next line is logged

	deadline time.Time // of the exchange; zero: none

	attempts int
	last     error     // of the last attempt to connect
	unknown  time.Time // when the server first said that it doesn't know the id; zero if its last answer was different
}

func (w *wait) since() time.Time { return w.join.member.Arrived }

// err is the error of the exchange, with the known roll.
func (w *wait) err(roll *rendezvous.Roll, cause error) error {
	roll.Key = w.join.key
	return roll.Err(w.join.member.Rank, w.since(), cause)
}

func (w *wait) untilLine() time.Duration { return w.next - time.Since(w.since()) }

// line logs a line about the wait, and sets the time of the next.
func (w *wait) line(says string, attrs ...any) {
	waited := time.Since(w.since())
	for w.next <= waited {
		w.next += min(w.next, maxLine)
	}
	me := &w.join.member
	attrs = append([]any{
		"key", w.join.key, "comm_rank", me.Rank, "size", me.Size, "address", w.client.id.Address(),
		"waited", words.Round(waited),
	}, attrs...)
	if !w.deadline.IsZero() {
		attrs = append(attrs, "gives_up_in", words.Round(time.Until(w.deadline)))
	}
	w.client.config.Log.Warn(says, attrs...)
}

func (w *wait) hello() door.Hello {
	id := w.client.id
	return door.Hello{
		Room: door.Room(lifecycle.RootCommID(id)), Secret: id.Secret(), Wire: w.client.config.Wire,
		Dial: w.client.config.dial,
	}
}

func (w *wait) connect(ctx context.Context) (net.Conn, error) {
	id := w.client.id
	conn, err := door.Dial(ctx, id.Address(), w.hello(), w.failed)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, w.err(&rendezvous.Roll{Size: w.join.member.Size}, &rendezvous.UnreachableError{
			Address: id.Address(), Rank: w.client.config.ServerRank, Self: w.join.member.Rank,
			Attempts: w.attempts, Since: w.since(), Context: cause, Last: w.last,
		})
	}
	var code lifecycle.Code
	switch {
	case errors.Is(err, door.ErrSecret):
		code = lifecycle.CodeAuth
	case errors.Is(err, door.ErrVersion):
		code = lifecycle.CodeMismatch
	case err == nil:
		return conn, nil
	case door.LocalFault(err):
		return nil, &lifecycle.SystemError{
			Code: lifecycle.CodeSystem, Op: "connect to the rendezvous at " + id.Address(), Err: err,
		}
	case w.ended(err):
		return nil, w.serverLost(err, nil)
	default:
		return nil, err
	}
	return nil, &lifecycle.PeerError{
		Code: code, Rank: w.client.config.ServerRank, Self: w.join.member.Rank, Comm: lifecycle.RootCommID(id),
		Detail: "rendezvous at " + id.Address() + ": " + err.Error(),
	}
}

// ended tells whether an attempt's error means that the server's process has ended.
func (w *wait) ended(met error) bool {
	return w.client.config.Serves && door.Gone(met) && !errors.Is(met, door.ErrUnknown)
}

// failed records a failed attempt to connect, and returns an error if retrying makes no sense.
func (w *wait) failed(err error) error {
	w.attempts++
	w.last = err
	switch {
	case w.ended(err):
		return err
	case !errors.Is(err, door.ErrUnknown):
		w.unknown = time.Time{}
	case w.unknown.IsZero():
		w.unknown = time.Now()
	case time.Since(w.unknown) >= w.client.config.UnknownTime:
		return &rendezvous.StaleError{
			Key: w.join.key, Self: w.join.member.Rank,
			Detail: fmt.Sprintf("the unique id is not known at %s: it belongs to another job, or its server has "+
				"ended or forgotten it; give all ranks of a job the same job name and secret", w.client.id.Address()),
		}
	}
	if w.untilLine() <= 0 {
		w.line(rendezvous.Have([]int{w.client.config.ServerRank})+" not opened the rendezvous yet, or can't be reached",
			"attempts", w.attempts, "last", err)
	}
	return nil
}

// run joins the exchange over a session and waits for its end. ctx must be the caller's own context: if ranks share a
// context, a rank may learn that another one left before a derived context ends.
func (w *wait) run(ctx context.Context, s *session) ([][]byte, error) {
	line := time.NewTimer(w.untilLine())
	defer line.Stop()
	var (
		ended   error            // this rank's own reason to stop waiting
		expired <-chan time.Time // then, the end of the wait for the server's roll
		done    = ctx.Done()
	)
	leave := func(k kind) {
		q := w.join
		q.kind, q.payload = k, nil
		q.how, q.reason = rendezvous.HowEnded(ctx)
		if errors.Is(context.Cause(ctx), ctx.Err()) {
			q.reason = fmt.Sprintf("%s after %v", q.reason, words.Round(time.Since(w.since())))
		}
		s.send(&q, leaveTime)
		done, ended, expired = nil, ctx.Err(), time.After(leaveTime)
	}
	if ctx.Err() != nil {
		leave(kindAbsent)
	} else {
		s.send(&w.join, joinTime)
	}
	for {
		select {
		case r, more := <-s.replies:
			switch {
			case !more:
				return nil, w.serverLost(s.err, ended)
			case r.stream != w.join.stream: // of an earlier exchange, which this rank has left
			case r.kind == kindRoll:
				w.known = r.outcome.Failed
				if missing := w.known.Missing(); len(missing) > 0 {
					w.line(rendezvous.Have(missing)+" not come to the rendezvous yet",
						"present", rendezvous.FormatMembers(w.known.Present()))
				}
				line.Reset(w.untilLine())
			default:
				return w.end(r, cmp.Or(ended, ctx.Err()))
			}
		case <-line.C:
			s.send(&request{kind: kindAsk, stream: w.join.stream, key: w.join.key}, joinTime)
		case <-done:
			leave(kindLeave)
		case <-w.client.ctx.Done():
			return nil, w.err(w.roll(), context.Cause(w.client.ctx))
		case <-expired:
			return nil, w.err(w.roll(), ended)
		}
	}
}

// end turns the server's final reply into the result of Exchange.
func (w *wait) end(r reply, ended error) ([][]byte, error) {
	if r.kind == kindResult && len(r.outcome.Payloads) != w.join.member.Size {
		return nil, &lifecycle.SystemError{
			Code: lifecycle.CodeInternal, Op: "rendezvous: a result of another size than asked for",
		}
	}
	return r.outcome.Result(w.join.key, w.join.member.Rank, w.since(), ended)
}

// roll returns the last roll from the server, or one of this rank alone.
func (w *wait) roll() *rendezvous.Roll {
	if w.known != nil {
		return w.known
	}
	return &rendezvous.Roll{Size: w.join.member.Size, Members: []rendezvous.Member{w.join.member}}
}

// serverLost returns the error for a lost connection to the server, most likely because the server's rank died.
func (w *wait) serverLost(why, ended error) error {
	roll, server, size := w.roll(), w.client.config.ServerRank, w.join.member.Size
	how, detail := departure(why)
	address := w.client.id.Address()
	if server < 0 || server >= size || server == w.join.member.Rank {
		return w.err(roll, errors.Join(ended,
			&lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "rendezvous at " + address, Err: why}))
	}
	if how == rendezvous.Died {
		how, detail = rendezvous.Shut, "it served the rendezvous at "+address
	}
	i := slices.IndexFunc(roll.Members, func(m rendezvous.Member) bool { return m.Rank == server })
	if i < 0 {
		i = len(roll.Members)
		roll.Members = append(roll.Members, rendezvous.Member{Rank: server, Size: size, Host: address})
	}
	roll.Members[i].Leave(how, detail)
	roll.Sort()
	return w.err(roll, ended)
}

// session is a client's connection after the handshake: one goroutine reads from it, and the current exchange writes to
// it.
type session struct {
	conn    net.Conn
	replies chan reply // closed when no more come
	err     error      // why
}

func newSession(conn net.Conn) *session {
	_ = door.KeepWatch(conn, silence) // if this fails, the loss of the host is noticed later
	s := &session{conn: conn, replies: make(chan reply)}
	go s.read() // ends with the connection; bye waits for it
	return s
}

func (s *session) send(q *request, within time.Duration) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(within)) // fails on a closed connection, as will the write
	if _, err := s.conn.Write(q.encode()); err != nil {
		_ = s.conn.Close() // the reader sees the end
	}
}

// bye tells the server that this rank has finished, and waits briefly until it closes the connection, as closing first
// could destroy the bye.
func (s *session) bye() {
	s.send(&request{kind: kindBye}, leaveTime)
	_ = s.conn.SetReadDeadline(time.Now().Add(leaveTime)) // fails on a closed connection, whose reader has ended
	for range s.replies {
	}
}

func (s *session) read() {
	defer close(s.replies)
	defer s.conn.Close() //nolint:errcheck // the session has ended
	in := bufio.NewReaderSize(s.conn, 16<<10)
	for {
		k, body, err := readFrame(in, replyLimit)
		var r reply
		if err == nil {
			r, err = decodeReply(k, body, time.Now())
		}
		if err != nil {
			s.err = err
			return
		}
		s.replies <- r
	}
}

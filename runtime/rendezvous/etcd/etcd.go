package etcd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

const (
	leaseTime = 5 * time.Second // from a rank's last keep-alive until etcd removes its keys
	leaveTime = time.Second     // for writing a rank's last event
	firstLine = 5 * time.Second // until a waiting rank logs a line; later lines come at doubled times
	maxLine   = 5 * time.Minute // between two lines

	firstPause = 50 * time.Millisecond // between two attempts to reach etcd; doubles each time, up to maxPause
	maxPause   = time.Second
)

// Rendezvous is one rank's part in a unique id.
type Rendezvous struct {
	config *Config
	prefix string // of all keys of the id
	room   *room
	log    *slog.Logger
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	turn chan struct{} // holds a token during an exchange or Close; guards the fields below

	session *session // nil until connected
	member  rendezvous.Member
}

var _ rendezvous.Rendezvous = (*Rendezvous)(nil)

var errClosed = &lifecycle.UsageError{Code: lifecycle.CodeInvalidUsage, Detail: "this rank closed its rendezvous"}

// New returns the rendezvous of a unique id. It doesn't use the network: the first Exchange connects. log gets a line
// while a rank waits; nil is slog.Default. Use one for each rank, and close it.
func New(config *Config, id lifecycle.UniqueID, log *slog.Logger) (*Rendezvous, error) {
	s, err := newSeal(id)
	if err != nil {
		return nil, err
	}
	r := &Rendezvous{
		config: config, prefix: config.prefix + "/" + lifecycle.RootCommID(id).String() + "/",
		room: newRoom(rand.Text(), s), log: cmp.Or(log, slog.Default()), turn: make(chan struct{}, 1),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

// Exchange implements [rendezvous.Rendezvous]. The other ranks learn of a rank's death when its lease ends, after
// leaseTime.
func (r *Rendezvous) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	if err := rendezvous.CheckArgs(key, size, payload); err != nil {
		return nil, err
	}
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	me := rendezvous.Here(rank, size)
	select {
	case r.turn <- struct{}{}:
	default: // another exchange is in progress
		select {
		case r.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, r.room.roll(key, size).Err(rank, me.Arrived, context.Cause(ctx))
		}
	}
	defer func() { <-r.turn }()
	if closed := context.Cause(r.ctx); closed != nil {
		return nil, closed
	}
	reach := ctx
	if ctx.Err() != nil { // allow time to tell the others that this rank won't come
		var end context.CancelFunc
		reach, end = context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer end()
	}
	if err := r.reach(reach, me); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	answers := make(chan answer, 8) // two per generation
	r.room.expect(func(a answer) {
		select {
		case answers <- a:
		default: // drop: of a generation that this rank has left
		}
	})
	defer r.room.expect(nil)
	w := &wait{
		Rendezvous: r, answers: answers, join: event{What: joined, Key: key, Member: me, Payload: payload},
		next: firstLine,
	}
	out, cause := w.run(ctx)
	cause = cmp.Or(cause, caller.Err()) // caller ends before ctx, and another rank may share caller
	if out == nil {
		return nil, r.room.roll(key, size).Err(rank, me.Arrived, cause)
	}
	shared, err := out.Result(key, rank, me.Arrived, cause)
	if err != nil {
		return nil, err
	}
	payloads := make([][]byte, size)
	for i, p := range shared {
		payloads[i] = slices.Clone(p)
	}
	return payloads, nil
}

// reach connects, and retries while etcd can't be reached, until ctx ends.
func (r *Rendezvous) reach(ctx context.Context, me rendezvous.Member) error {
	unreached := &rendezvous.UnreachableError{
		Address: r.config.shown, Rank: rendezvous.NoRank, Self: me.Rank, Since: me.Arrived,
	}
	pause, line := firstPause, firstLine
	for r.session == nil {
		one, cancel := context.WithTimeout(ctx, dialTime)
		err := r.connect(one, me)
		cancel()
		unreached.Attempts++
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			unreached.Context = context.Cause(ctx)
			roll := rendezvous.Roll{Size: me.Size, Members: []rendezvous.Member{me}}
			return roll.Err(me.Rank, me.Arrived, unreached)
		case refusedTLS(err), !transient(err):
			if refusedTLS(err) {
				err = fmt.Errorf("%w (in the URL, cacert= is the authority of etcd's certificate, and cert= and key= "+
					"are what etcd may ask of its clients)", err)
			}
			return &lifecycle.SystemError{
				Code: lifecycle.CodeSystem, Op: "meet at etcd at " + r.config.shown, Err: err,
			}
		}
		unreached.Last = err
		if waited := time.Since(me.Arrived); waited >= line {
			line = 2 * waited
			r.log.Warn("rank has not reached the rendezvous yet", "comm_rank", me.Rank, "size", me.Size, "address",
				r.config.shown, "waited", words.Round(waited), "attempts", unreached.Attempts, "last", err)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-ctx.Done():
		}
	}
	return nil
}

// transient tells whether another attempt to connect may succeed after this err.
func transient(err error) bool {
	code := status.Code(err)
	if etcd, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = etcd.Code()
	}
	return slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}, code) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// refusedTLS tells whether one side refused the other's certificate, or doesn't speak TLS: no further attempt will
// succeed. gRPC keeps the reason as text only.
func refusedTLS(err error) bool { return strings.Contains(err.Error(), "tls: ") }

// Close implements [rendezvous.Rendezvous]. It returns within seconds, whether or not etcd answers.
func (r *Rendezvous) Close() error {
	r.cancel(errClosed)
	r.turn <- struct{}{} // an exchange in progress ends now
	defer func() { <-r.turn }()
	s := r.session
	if s == nil {
		return nil
	}
	r.session = nil
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if g := r.room.begun(); g != "" {
		_ = r.tell(ctx, s, event{Generation: g, What: done, Member: r.member}) // else the lease's end tells them
	}
	_, _ = s.client.Revoke(ctx, s.lease) // if this fails, the lease ends by itself
	return s.close()
}

// session is a rank's connection to etcd, and its lease.
type session struct {
	client  *clientv3.Client
	lease   clientv3.LeaseID
	events  int
	begins  chan struct{} // gets a token when a generation begins
	lost    chan struct{} // closed when the lease or the watch has ended
	why     error         // why it ended
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func (s *session) close() error {
	s.cancel()
	err := s.client.Close()
	s.running.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// connect makes the session: it reads the present keys, watches for changes, and writes this rank's key.
func (r *Rendezvous) connect(ctx context.Context, me rendezvous.Member) (err error) {
	client, err := clientv3.New(r.config.client)
	if err != nil {
		return err
	}
	whole, cancel := context.WithCancel(context.Background())
	s := &session{client: client, begins: make(chan struct{}, 1), lost: make(chan struct{}), cancel: cancel}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	lease, err := client.Grant(ctx, int64(leaseTime/time.Second))
	if err != nil {
		return err
	}
	s.lease = lease.ID
	alive, err := client.KeepAlive(whole, s.lease)
	if err != nil {
		return err
	}
	was, err := client.Get(ctx, r.prefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return err
	}
	for _, kv := range was.Kvs {
		r.room.put(r.prefix, kv.Key, kv.Value, false)
	}
	comes := client.Watch(clientv3.WithRequireLeader(whole), r.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(was.Header.Revision+1))
	s.running.Go(func() { r.follow(s, alive, comes) })
	r.member = me
	here := []entry{{rankKeys + r.room.own, me}}
	if me.Rank == 0 { // in one transaction, so that no rank sees rank 0 without a generation
		here = append(here, entry{generationKey, rand.Text()})
	}
	if err := r.put(ctx, s, here...); err != nil {
		return err
	}
	r.session = s
	return nil
}

// follow applies the changes that etcd reports, until the lease or the watch ends.
func (r *Rendezvous) follow(s *session, alive <-chan *clientv3.LeaseKeepAliveResponse, comes clientv3.WatchChan) {
	defer close(s.lost)
	for {
		select {
		case _, more := <-alive:
			if !more {
				s.why = fmt.Errorf("etcd at %s ended this rank's lease, after %v without a keep-alive",
					r.config.shown, leaseTime)
				return
			}
		case news, more := <-comes:
			if err := news.Err(); err != nil || !more {
				s.why = fmt.Errorf("the watch of etcd at %s ended: %w",
					r.config.shown, cmp.Or(err, context.Canceled))
				return
			}
			for _, ev := range news.Events {
				if ev.Type == clientv3.EventTypeDelete {
					r.room.gone(r.prefix, ev.Kv.Key)
				} else if r.room.put(r.prefix, ev.Kv.Key, ev.Kv.Value, true) {
					select {
					case s.begins <- struct{}{}:
					default:
					}
				}
			}
		}
	}
}

// entry is a key below the prefix, and its value.
type entry struct {
	name  string
	value any
}

// put writes keys with the session's lease, in one transaction.
func (r *Rendezvous) put(ctx context.Context, s *session, all ...entry) error {
	var puts []clientv3.Op
	for _, e := range all {
		value, err := r.room.seal.close(r.prefix+e.name, e.value)
		if err != nil {
			return err
		}
		puts = append(puts, clientv3.OpPut(r.prefix+e.name, value, clientv3.WithLease(s.lease)))
	}
	_, err := s.client.Txn(ctx).Then(puts...).Commit()
	return err
}

func (r *Rendezvous) tell(ctx context.Context, s *session, ev event) error {
	s.events++
	return r.put(ctx, s, entry{fmt.Sprintf("%s%s/%08d", eventKeys, r.room.own, s.events), ev})
}

// wait is an exchange in progress.
type wait struct {
	*Rendezvous
	answers <-chan answer
	join    event
	cards   *mem.Outcome  // of all ranks of the generation; this rank has confirmed them
	next    time.Duration // the waiting time at which the next line is logged
}

// run joins the exchange in each generation that begins, confirms that it has all cards, and waits until all ranks have
// confirmed. When ctx ends it leaves, and waits a little for the outcome: the roll, or the payloads if the last rank
// came at the same moment. The outcome is nil if unknown; cause is this rank's own reason to stop waiting.
func (w *wait) run(ctx context.Context) (out *mem.Outcome, cause error) {
	line := time.NewTimer(w.next)
	defer line.Stop()
	s, in, ended := w.session, "", ctx.Done()
	var expired <-chan time.Time
	for {
		if cause == nil && ctx.Err() != nil {
			var err error
			if in, expired, err = w.leave(ctx, in); err != nil {
				return nil, err
			}
			cause, ended = ctx.Err(), nil
			line.Stop()
		}
		if g := w.room.begun(); cause == nil && g != "" && g != in {
			in, w.cards, w.join.Generation = g, nil, g
			if err := w.say(ctx, w.join); err != nil {
				return nil, err
			}
		}
		select {
		case a := <-w.answers:
			switch {
			case a.generation != in:
			case a.Payloads == nil:
				return a.Outcome, cause
			case a.what == confirmed:
				return w.cards, nil
			case cause == nil:
				w.cards = a.Outcome
				confirm := event{Generation: in, What: confirmed, Key: w.join.Key, Member: w.join.Member}
				if err := w.say(ctx, confirm); err != nil {
					return nil, err
				}
			}
		case <-s.begins:
		case <-s.lost:
			return nil, cmp.Or(cause, s.why)
		case <-line.C:
			w.line()
			line.Reset(w.next - time.Since(w.join.Member.Arrived))
		case <-ended:
		case <-expired:
			return nil, cause
		}
	}
}

// say writes an event. The end of ctx is no error here.
func (w *wait) say(ctx context.Context, ev event) error {
	if err := w.tell(ctx, w.session, ev); err != nil && ctx.Err() == nil {
		return fmt.Errorf("write this rank's card to etcd at %s: %w", w.config.shown, err)
	}
	return nil
}

// leave tells the others that this rank leaves the exchange, or won't join it, and why. It returns the generation whose
// outcome to await, and a channel that ends the wait.
func (w *wait) leave(ctx context.Context, in string) (generation string, expired <-chan time.Time, err error) {
	ev := event{Generation: in, What: gaveUp, Key: w.join.Key, Member: w.join.Member}
	ev.How, ev.Reason = rendezvous.HowEnded(ctx)
	if in == "" {
		ev.What, ev.Generation = withdrew, w.begunSoon()
	} else {
		ev.Reason = fmt.Sprintf("%s after %v", ev.Reason, words.Round(time.Since(w.join.Member.Arrived)))
	}
	if ev.Generation == "" || context.Cause(w.ctx) != nil { // no rank waits, or Close tells the others
		return "", nil, context.Cause(ctx)
	}
	expired = time.After(leaveTime)
	last, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if w.tell(last, w.session, ev) != nil {
		return "", nil, ctx.Err()
	}
	return ev.Generation, expired, nil
}

// begunSoon returns the current generation. Rank 0 waits until etcd reports the generation that it has just begun.
func (w *wait) begunSoon() string {
	limit := time.After(leaveTime)
	for w.join.Member.Rank == 0 && w.room.begun() == "" {
		select {
		case <-w.session.begins:
		case <-w.session.lost:
			return ""
		case <-limit:
			return ""
		}
	}
	return w.room.begun()
}

// line logs a line about the wait, and sets the time of the next.
func (w *wait) line() {
	me := &w.join.Member
	waited := time.Since(me.Arrived)
	for w.next <= waited {
		w.next += min(w.next, maxLine)
	}
	roll := w.room.roll(w.join.Key, me.Size)
	w.log.Warn("rank waits at the rendezvous", "key", w.join.Key, "comm_rank", me.Rank, "size", me.Size,
		"address", w.config.shown, "waited", words.Round(waited), "arrived", len(roll.Present()),
		"missing", words.Numbers(roll.Missing()), "present", rendezvous.FormatMembers(roll.Present()))
}

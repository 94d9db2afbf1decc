package ccl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	rtcp "github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// Ranks whose connections broke, or were revoked, find each other again: every rank has told all others, when the
// communicator was made, where a rendezvous can be held in its process. It is held in that of the lowest rank that
// takes part; what it is about, and the id under which it is held, follows from the communicator, the act and the act's
// number, so that nobody needs to be told.

// reunite exchanges a payload among members, ranks of this communicator in ascending order, this one among them.
func (c *core) reunite(ctx context.Context, a *act, members []int, mine []byte) ([][]byte, error) {
	at, err := c.reunion(a, members)
	if err != nil {
		return nil, err
	}
	defer at.Close() //nolint:errcheck // the ranks have met, or the error of that counts
	ctx, blame := c.heldUp(ctx)
	payloads, err := at.Exchange(ctx, a.rec.Act.String(), indexOf(members, c.rank), len(members), mine)
	return payloads, blame(err)
}

// heldUp bounds ctx by the communicator's life: who ends or finalizes it does not wait for ranks that do not come. The
// error of what ran under it passes through blame, which says whether that was why.
func (c *core) heldUp(ctx context.Context) (bounded context.Context, blame func(error) error) {
	bounded, cancel := context.WithCancelCause(ctx)
	held := c.anew.context(c.whole)
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return bounded, func(err error) error {
		stop()
		cancel(nil)
		if err != nil && held.Err() != nil {
			return context.Cause(held)
		}
		return c.unmet(err)
	}
}

// unmet turns the error of a rank that comes to a meeting which is over, or is not held, into one about the other
// ranks: here ids follow from the calls that ranks make, so that is no mistake of the caller's.
func (c *core) unmet(err error) error {
	var stale *rendezvous.StaleError
	if !errors.As(err, &stale) {
		return err
	}
	return &PeerError{
		Code: lifecycle.CodeMismatch, Rank: -1, Comm: c.id, Name: c.name, Self: c.rank,
		Detail: "the ranks that go on do not meet: " + stale.Detail,
	}
}

// meetings is what bounds the meetings of a communicator's ranks. Between end and begin, none can be held.
type meetings struct {
	mu     sync.Mutex
	ended  error
	ctx    context.Context // of those that are held, made with the first; nil for none
	cancel context.CancelCauseFunc
}

// context is that of the meetings which are held now. It ends with whole.
func (m *meetings) context(whole context.Context) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil {
		m.ctx, m.cancel = context.WithCancelCause(whole)
		if m.ended != nil {
			m.cancel(m.ended)
		}
	}
	return m.ctx
}

// end ends the meetings that are held, and those that are to come, because of err, which is not nil.
func (m *meetings) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = err
	if m.cancel != nil {
		m.cancel(err)
	}
}

// begin allows meetings again. None is held.
func (m *meetings) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended, m.ctx, m.cancel = nil, nil, nil
}

// reunion is the rendezvous of members for act a.
func (c *core) reunion(a *act, members []int) (rendezvous.Rendezvous, error) {
	host := members[0]
	seed := append([]byte("carillon reunion"), c.secret...)
	seed = append(seed, c.id[:]...)
	seed = append(seed, byte(a.rec.Act))
	seed = binary.LittleEndian.AppendUint64(seed, a.rec.Seq)
	id, err := lifecycle.UniqueIDFromSecret(seed, c.meets[host])
	if err != nil {
		return nil, err
	}
	if c.meets[host] == "" {
		return c.rt.meetLocally(lifecycle.RootCommID(id), len(members)), nil
	}
	var forget func()
	if host == c.rank {
		s, err := c.rt.rendezvousServer()
		if err != nil {
			return nil, err
		}
		if err := s.Serve(id); err != nil {
			return nil, fmt.Errorf("hold the rendezvous of the remaining ranks: %w", err)
		}
		forget = func() { s.Forget(id) }
	}
	config := c.rt.rendezvousConfig()
	config.ServerRank = 0                // members[0]: errors speak of the members by the numbers that they have among themselves
	config.UnknownTime = reunionPatience // the host comes when it, too, has found out
	return &reunion{Rendezvous: rtcp.Dial(id, config), rt: c.rt, forget: forget}, nil
}

// reunion is a rendezvous that is held in one of the ranks' processes.
type reunion struct {
	rendezvous.Rendezvous
	rt     *Runtime
	forget func() // ends it, in the process that holds it; nil in others, and once it was handed on
}

// Exchange is the rendezvous's. One that failed does not end by itself: a rank that has not come may do so later.
func (r *reunion) Exchange(ctx context.Context, key string, rank, size int, payload []byte) ([][]byte, error) {
	payloads, err := r.Rendezvous.Exchange(ctx, key, rank, size, payload)
	if err != nil && r.forget != nil {
		r.rt.remember(r.forget)
		r.forget = nil
	}
	return payloads, err
}

// maxPast is how many reunions that failed a runtime remembers, to tell a rank that comes late who was there and left.
const maxPast = 64

// remember keeps a reunion that failed, and forgets the one that failed longest ago when there are too many.
func (rt *Runtime) remember(forget func()) {
	rt.mu.Lock()
	rt.past = append(rt.past, forget)
	var oldest func()
	if len(rt.past) > maxPast {
		oldest = rt.past[0]
		rt.past = slices.Delete(rt.past, 0, 1)
	}
	rt.mu.Unlock()
	if oldest != nil {
		oldest()
	}
}

// reunionPatience is how long a rank asks for a rendezvous that its host does not hold yet, when its context has no deadline.
const reunionPatience = 2 * time.Minute

// localMeeting is a rendezvous of ranks that share this runtime. It is there from its first guest to its last; one whose
// guests leave before all have come has failed, and is remembered like a reunion.
type localMeeting struct {
	*mem.Rendezvous
	rt       *Runtime
	id       CommID
	guests   int // still expected to close it
	awaited  int // of these, that have not come
	recorded bool
}

// meetLocally returns the rendezvous of that id, which the first of its guests opens.
func (rt *Runtime) meetLocally(id CommID, size int) *localMeeting {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	m := rt.local[id]
	if m == nil {
		m = &localMeeting{Rendezvous: mem.New(size), rt: rt, id: id, guests: size, awaited: size}
		rt.local[id] = m
	}
	m.awaited--
	return m
}

// Close says that one guest has left.
func (m *localMeeting) Close() error {
	m.rt.mu.Lock()
	m.guests--
	failed := m.awaited > 0 && !m.recorded
	m.recorded = m.recorded || failed
	if m.guests == 0 {
		m.forget()
	}
	m.rt.mu.Unlock()
	if failed {
		m.rt.remember(func() {
			m.rt.mu.Lock()
			defer m.rt.mu.Unlock()
			m.forget()
		})
	}
	return nil
}

// forget takes the meeting out of the table. The caller holds rt.mu.
func (m *localMeeting) forget() {
	if m.rt.local[m.id] == m {
		delete(m.rt.local, m.id)
	}
}

func indexOf(members []int, rank int) int {
	for i, m := range members {
		if m == rank {
			return i
		}
	}
	return -1
}

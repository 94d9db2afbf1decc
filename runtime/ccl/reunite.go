package ccl

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	rtcp "github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// Ranks whose connections broke, or were revoked, find each other again: every rank has told all others, when the communicator was made, where
// a rendezvous can be held in its process. It is held in that of the lowest rank that takes part; what it is about, and the id under
// which it is held, follows from the communicator, the act and the act's number, so that nobody needs to be told.

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

// heldUp bounds ctx by the communicator's life: who ends it does not wait for ranks that do not come. The error of what ran under it passes through
// blame, which says whether that was why.
func (c *core) heldUp(ctx context.Context) (bounded context.Context, blame func(error) error) {
	bounded, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.whole, func() { cancel(context.Cause(c.whole)) })
	return bounded, func(err error) error {
		stop()
		cancel(nil)
		if err != nil && c.whole.Err() != nil {
			return context.Cause(c.whole)
		}
		return err
	}
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
	if host == c.rank {
		s, err := c.rt.rendezvousServer()
		if err != nil {
			return nil, err
		}
		if err := s.Serve(id); err != nil {
			return nil, fmt.Errorf("hold the rendezvous of the remaining ranks: %w", err)
		}
	}
	config := c.rt.rendezvousConfig()
	config.ServerRank = 0                // members[0]: errors speak of the members by the numbers that they have among themselves
	config.UnknownTime = reunionPatience // the host comes when it, too, has found out
	return rtcp.Dial(id, config), nil
}

// reunionPatience is how long a rank asks for a rendezvous that its host does not hold yet, when its context has no deadline.
const reunionPatience = 2 * time.Minute

// localMeeting is a rendezvous of ranks that share this runtime. It is there from its first guest to its last.
type localMeeting struct {
	*mem.Rendezvous
	rt     *Runtime
	id     CommID
	guests int // still expected to close it
}

// meetLocally returns the rendezvous of that id, which the first of its guests opens.
func (rt *Runtime) meetLocally(id CommID, size int) *localMeeting {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	m := rt.local[id]
	if m == nil {
		m = &localMeeting{Rendezvous: mem.New(size), rt: rt, id: id, guests: size}
		rt.local[id] = m
	}
	return m
}

// Close says that one guest has left.
func (m *localMeeting) Close() error {
	m.rt.mu.Lock()
	defer m.rt.mu.Unlock()
	if m.guests--; m.guests == 0 {
		delete(m.rt.local, m.id)
	}
	return nil
}

func indexOf(members []int, rank int) int {
	for i, m := range members {
		if m == rank {
			return i
		}
	}
	return -1
}

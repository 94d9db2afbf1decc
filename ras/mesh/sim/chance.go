package sim

import (
	"errors"
	"math/rand"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"time"
)

// The streams of random numbers that follow from a seed, beside the network's.
const (
	streamGlobal = 1 + iota
	streamStarts
	streamProcess
)

// processSource is a process's source of randomness. As on the network, its numbers at a time do not depend on earlier
// draws.
type processSource struct {
	seed, id uint64
	began    time.Time

	mu   sync.Mutex
	last sent
}

func (s *processSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	stream := mathrand.NewPCG(s.seed, s.id).Uint64()
	return mathrand.NewPCG(stream^s.last.next(now), uint64(now)).Uint64()
}

var errSeed = errors.New("sim: math/rand's global source does not follow from a seed, so that no run would repeat")

// renewTime is how often the global source is seeded again, with a seed that follows from the first one, so that two
// runs that differ in a detail, such as two timers of memberlist that expire at one instant, converge again.
const renewTime = 10 * time.Millisecond

// seedGlobal seeds math/rand's global source until end is called. memberlist uses it to choose the members to probe and
// to gossip to, and has no other source. No secret depends on it: keys and nonces are crypto/rand's.
func seedGlobal(seed uint64) (end func(), err error) {
	seeds := mathrand.New(mathrand.NewPCG(seed, streamGlobal))
	first := seeds.Int64()
	reseed(first)
	if rand.Int63() != rand.New(rand.NewSource(first)).Int63() {
		return nil, errSeed
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		renew := time.NewTicker(renewTime)
		defer renew.Stop()
		for {
			select {
			case <-stop:
				return
			case <-renew.C:
				reseed(seeds.Int64())
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		reseed(mathrand.Int64())
	}, nil
}

// reseed is rand.Seed, which does nothing since Go 1.24 unless randseednop=0 is set. It is set only during the call, so
// that memberlist's own Seed at the program's start stays without effect.
func reseed(seed int64) {
	const name = "GODEBUG"
	was, set := os.LookupEnv(name)
	_ = os.Setenv(name, was+",randseednop=0") // the name is right, and the value has no zero byte
	rand.Seed(seed)                           //nolint:staticcheck // see above
	if set {
		_ = os.Setenv(name, was)
	} else {
		_ = os.Unsetenv(name)
	}
}

// moments hands out times, each only once: what happens at one instant happens in no defined order.
type moments struct {
	taken map[int64]bool
	many  int // the size at which past times are forgotten
}

// next is the first free time from now+after on, as a duration from now.
func (m *moments) next(after time.Duration) time.Duration {
	now := time.Now().UnixNano()
	if len(m.taken) >= m.many {
		for at := range m.taken {
			if at <= now {
				delete(m.taken, at)
			}
		}
		if m.taken == nil {
			m.taken = make(map[int64]bool)
		}
		const few = 64
		m.many = max(few, 2*len(m.taken))
	}
	at := now + int64(after)
	for m.taken[at] {
		at++
	}
	m.taken[at] = true
	return time.Duration(at - now)
}

package sim_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a job of real meshes on a simulated network.
type job struct {
	t        *testing.T
	network  *sim.Network
	machines []*sim.Machine
	ranks    []*rank
}

type rank struct {
	process *sim.Process
	mesh    *mesh.Mesh
	mu      sync.Mutex
	events  []seen
}

type seen struct {
	mesh.Event
	at time.Time
}

func (r *rank) since(from time.Time) (events []seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if !e.at.Before(from) {
			events = append(events, e)
		}
	}
	return events
}

// start starts machines with ranks each, joins them, and waits until all know all. They are closed when the test ends.
func start(t *testing.T, seed uint64, link sim.Link, machines, each int, tuning mesh.Tuning) *job {
	t.Helper()
	j := &job{t: t, network: sim.New(seed, link)}
	t.Cleanup(j.close)
	secret := make([]byte, mesh.SecretSize)
	for range machines {
		host := j.network.Machine()
		j.machines = append(j.machines, host)
		for range each {
			r := &rank{process: host.Start(len(j.ranks), machines*each)}
			m, err := mesh.Start(mesh.Config{
				Self: r.process.Member(), Secret: secret, Job: "job", Tuning: tuning,
				Host: r.process, Transport: r.process.Transport(),
				OnEvent: func(e mesh.Event) {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.events = append(r.events, seen{e, time.Now()})
				},
				Handler:   func(_ context.Context, _ string, q []byte) []byte { return append([]byte("re: "), q...) },
				LocalNote: func(o mesh.Member) []byte { return []byte("the tape of " + o.Name) },
			})
			if err != nil {
				t.Fatal(err)
			}
			r.mesh = m
			j.ranks = append(j.ranks, r)
		}
	}
	for _, r := range j.ranks[1:] {
		if _, err := r.mesh.Join(t.Context(), j.ranks[0].mesh.Self().Addr); err != nil {
			t.Fatal(err)
		}
	}
	// What gossip missed, which is rare, the next comparison of two states brings.
	j.until(10*time.Minute, "all know all", func() bool {
		for _, r := range j.ranks {
			if len(r.mesh.Members()) != len(j.ranks) {
				return false
			}
		}
		return true
	})
	return j
}

// until waits, in virtual time, until ok.
func (j *job) until(limit time.Duration, what string, ok func() bool) {
	j.t.Helper()
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			j.t.Fatalf("after %v not: %s", limit, what)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

func (j *job) close() {
	var closing sync.WaitGroup
	for _, r := range j.ranks {
		closing.Go(func() {
			r.process.Continue()
			if err := r.mesh.Close(); err != nil {
				j.t.Error(err)
			}
		})
	}
	closing.Wait()
	// memberlist's last probes end with their timers, and virtual time stops with the test.
	time.Sleep(time.Minute)
}

// told is how long after from each rank but those excepted was told of a kind of event of a member.
func (j *job) told(limit time.Duration, from time.Time, kind mesh.Kind, name string, except ...*rank) (worst time.Duration) {
	j.t.Helper()
	for i, r := range j.ranks {
		skip := false
		for _, e := range except {
			skip = skip || e == r
		}
		if skip {
			continue
		}
		found := func() bool {
			for _, e := range r.since(from) {
				if e.Kind == kind && e.Member.Name == name {
					worst = max(worst, e.at.Sub(from))
					return true
				}
			}
			return false
		}
		for end := from.Add(limit); !found(); {
			if time.Now().After(end) {
				j.t.Fatalf("rank %d was not told within %v that %s is %v; it was told %v", i, limit, name, kind, r.since(from))
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return worst
}

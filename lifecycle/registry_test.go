package lifecycle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// live are the lives that have not retired, in the order in which they were opened.
func live(r *Registry) []*Life {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var all []*Life
	for _, h := range slices.Sorted(maps.Keys(r.lives)) {
		if life := r.lives[h]; !life.retired {
			all = append(all, life)
		}
	}
	return all
}

// end destroys a life and retires it.
func end(tb testing.TB, life *Life, site Site) {
	tb.Helper()
	if _, err := life.Do(CallDestroy, site); err != nil {
		tb.Fatal(err)
	}
	if !life.Retire() {
		tb.Fatalf("a life in state %v did not retire", life.State())
	}
}

func TestRegistryHoldsTenThousand(t *testing.T) {
	const n = 10_000
	registry := NewRegistry()
	lives := make([]*Life, n)
	for i := range lives {
		lives[i] = registry.Open(Info{ID: CommID{byte(i), byte(i >> 8)}, Rank: i})
		lives[i].Signal(EventInitDone, nil)
	}
	all := live(registry)
	if len(all) != n {
		t.Fatalf("%d are live; want %d", len(all), n)
	}
	for i, life := range lives {
		found, err := registry.Lookup(life.Handle())
		if err != nil || found != life || all[i] != life {
			t.Fatalf("life %d: Lookup gives %v, %v, and live is %v", i, found, err, all[i])
		}
	}
	for i := range lives[:n/2] {
		end(t, lives[2*i], Site{})
	}
	for i, life := range live(registry) {
		if life != lives[2*i+1] {
			t.Fatalf("the live life %d is that of rank %d", i, life.Info().Rank)
		}
	}
	if len(live(registry)) != n/2 {
		t.Errorf("%d are live; want %d", len(live(registry)), n/2)
	}
}

func TestStaleHandle(t *testing.T) {
	registry := NewRegistry()
	site := Site{Func: "main.train", File: "train.go", Line: 42}
	destroyed := ready(registry)
	end(t, destroyed, site)
	aborted := ready(registry)
	if _, err := aborted.Do(CallAbort, site); err != nil {
		t.Fatal(err)
	}
	if !aborted.Retire() {
		t.Fatal("an aborted life did not retire")
	}

	for _, c := range []struct {
		life *Life
		want error
	}{{destroyed, ErrDestroyed}, {aborted, ErrAborted}} {
		_, err := registry.Lookup(c.life.Handle())
		var usage *UsageError
		if !errors.Is(err, c.want) || !errors.As(err, &usage) || usage.First != site || usage.Name != "dp" {
			t.Errorf("Lookup of a stale handle: %v; want %v, with name and site", err, c.want)
		}
		if c.life.Retire() {
			t.Error("a life retired twice")
		}
		if err := c.life.Check(CallAllReduce); !errors.Is(err, c.want) || !strings.Contains(err.Error(),
			"main.train (train.go:42)") {
			t.Errorf("a call on a retired life: %v", err)
		}
	}

	for range 3 * remembered { // enough for it to be forgotten
		end(t, ready(registry), site)
	}
	if found, err := registry.Lookup(destroyed.Handle()); found != nil || !errors.Is(err, ErrDestroyed) {
		t.Errorf("a handle from long ago finds %v, %v", found, err)
	}
	if err := destroyed.Check(CallDestroy); !errors.Is(err, ErrDestroyed) || !strings.Contains(err.Error(),
		"main.train (train.go:42)") {
		t.Errorf("a call on a life that is forgotten: %v", err)
	}
}

func TestFewOfTheEndedAreKept(t *testing.T) {
	registry := NewRegistry()
	for range 20 * remembered {
		end(t, ready(registry), Site{})
	}
	if n := len(registry.lives); n != remembered {
		t.Errorf("communicators that came and went one by one have left %d lives", n)
	}
}

func TestForeignHandle(t *testing.T) {
	registry := NewRegistry()
	life := ready(registry)
	h := life.Handle()
	for _, foreign := range []Handle{
		0, h + 1, 1 << 32, ^Handle(0),
	} {
		if found, err := registry.Lookup(foreign); found != nil || !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("Lookup(%d) = %v, %v; want an invalid argument", foreign, found, err)
		}
	}
}

func TestRetireWaitsForTheEnd(t *testing.T) {
	registry := NewRegistry()
	life := ready(registry)
	if life.Retire() || len(live(registry)) != 1 {
		t.Error("a live communicator retired")
	}
	if _, err := life.Do(CallDestroy, Site{}); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Lookup(life.Handle()); err != nil {
		t.Errorf("a communicator that is being destroyed is not found: %v", err)
	}
	if !life.Retire() || life.State() != StateDestroyed {
		t.Errorf("a destroying communicator did not retire, or is %v now", life.State())
	}
}

// TestRegistryRaces opens, finds, lists and retires lives from several goroutines.
func TestRegistryRaces(t *testing.T) {
	registry := NewRegistry()
	var newest atomic.Pointer[Life]
	var racers []func()
	for g := range 4 {
		racers = append(racers, func() {
			for i := range 500 {
				life := registry.Open(Info{Name: fmt.Sprint(g, i), Rank: g})
				newest.Store(life)
				life.Signal(EventInitDone, nil)
				found, err := registry.Lookup(life.Handle())
				if found != life && !errors.Is(err, ErrAborted) { // others may have aborted it
					t.Errorf("Lookup of a live handle: %v, %v", found, err)
				}
				if other := newest.Load(); i%2 == 0 {
					_, _ = other.Do(CallAbort, Site{Line: g + 1})
				}
				if _, err := life.Do(CallAbort, Site{Line: g + 1}); err != nil && !errors.Is(err, ErrAborted) {
					t.Errorf("abort: %v", err)
				}
				if !life.Retire() {
					t.Error("an aborted life did not retire")
				}
			}
		}, func() {
			for range 100 {
				for _, life := range live(registry) {
					if info := life.Info(); info.Name == "" {
						t.Errorf("a life without its information: %+v", info)
					}
				}
			}
		})
	}
	race(racers...)
	if n := len(live(registry)); n != 0 {
		t.Errorf("%d lives are left", n)
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	registry := NewRegistry()
	h := ready(registry).Handle()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := registry.Lookup(h); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Lookup allocates %v times", n)
	}
}

// crowd is a registry with ten thousand live communicators.
func crowd() (*Registry, []Handle) {
	registry := NewRegistry()
	handles := make([]Handle, 10_000)
	for i := range handles {
		handles[i] = ready(registry).Handle()
	}
	return registry, handles
}

func BenchmarkLookup(b *testing.B) {
	registry, handles := crowd()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i++; i == len(handles) {
			i = 0
		}
		life, err := registry.Lookup(handles[i])
		if err != nil || life.Check(CallAllReduce) != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenDestroyRetire(b *testing.B) {
	registry, _ := crowd()
	b.ReportAllocs()
	for b.Loop() {
		end(b, ready(registry), Site{})
	}
}

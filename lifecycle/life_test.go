package lifecycle

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// ready is a life as most tests need it.
func ready(r *Registry) *Life {
	l := r.Open(Info{ID: CommID{1}, Name: "dp", Size: 4, Call: CallInitRank})
	l.Signal(EventInitDone, nil)
	return l
}

// model is a communicator's life by the tables alone.
type model struct {
	state State
	first map[Call]Site
	cause error
}

// refuses checks err, the answer to call, against the model.
func (m *model) refuses(t *rapid.T, call Call, site Site, nonBlocking bool, err error) {
	_, code := Next(m.state, call)
	if code == CodeOK {
		if err != nil {
			t.Fatalf("%v in state %v is legal; the answer is %v", call, m.state, err)
		}
		return
	}
	if code == CodeInitializing && nonBlocking {
		code = CodeInProgress
	}
	want := UsageError{Call: call, Code: code, State: m.state, Comm: CommID{1}, Name: "dp", Rank: 2, Site: site}
	switch code {
	case CodeDestroyed:
		want.First = m.first[CallDestroy]
	case CodeAborted:
		want.First = m.first[CallAbort]
	case CodeFinalized:
		want.First = m.first[CallFinalize]
	case CodeRevoked:
		want.First = m.first[CallRevoke]
	case CodeFailed:
		want.Cause = m.cause
	default:
	}
	var got *UsageError
	if !errors.As(err, &got) {
		t.Fatalf("%v in state %v is %v; the answer is %v", call, m.state, code, err)
	}
	if got.Detail == "" {
		t.Fatalf("the error does not say what to do instead: %v", err)
	}
	want.Detail = got.Detail
	if *got != want {
		t.Fatalf("%v in state %v: the error is\n %+v\nwant\n %+v", call, m.state, *got, want)
	}
}

// TestLifeFollowsTheTables makes random calls and events, and checks that the life follows the tables.
func TestLifeFollowsTheTables(t *testing.T) {
	calls, events := Calls(), Events()
	rapid.Check(t, func(t *rapid.T) {
		nonBlocking := rapid.Bool().Draw(t, "non-blocking")
		registry := NewRegistry()
		life := registry.Open(Info{ID: CommID{1}, Name: "dp", Rank: 2, Size: 4, NonBlocking: nonBlocking})
		m := model{state: StateInitializing, first: map[Call]Site{}}
		retired := false
		step := 0
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				step++
				if life.State() != m.state {
					t.Fatalf("the state is %v; want %v", life.State(), m.state)
				}
				if life.Cause() != m.cause { //nolint:errorlint // the very error that Signal was given, not one like it
					t.Fatalf("the cause is %v; want %v", life.Cause(), m.cause)
				}
				for _, call := range calls {
					if site, want := life.acts[call], m.first[call]; site != want {
						t.Fatalf("the first %v was at %v; want %v", call, site, want)
					}
				}
				if want := map[bool]int{true: 0, false: 1}[retired]; len(live(registry)) != want {
					t.Fatalf("the registry has %d lives; want %d", len(live(registry)), want)
				}
			},
			"check": func(t *rapid.T) {
				call := rapid.SampledFrom(calls).Draw(t, "call")
				m.refuses(t, call, Site{}, nonBlocking, life.Check(call))
			},
			"do": func(t *rapid.T) {
				call := rapid.SampledFrom(calls).Draw(t, "call")
				site := Site{Func: "main.step", File: "step.go", Line: step}
				state, err := life.Do(call, site)
				m.refuses(t, call, site, nonBlocking, err)
				next, _ := Next(m.state, call)
				if next != m.state {
					m.first[call] = site
					m.state = next
				}
				if state != m.state {
					t.Fatalf("Do(%v) leads to %v; want %v", call, state, m.state)
				}
			},
			"signal": func(t *rapid.T) {
				event := rapid.SampledFrom(events).Draw(t, "event")
				cause := fmt.Errorf("cause %d", step)
				state, changed := life.Signal(event, cause)
				next := After(m.state, event)
				if changed != (next != m.state) {
					t.Fatalf("Signal(%v) in state %v says changed = %v", event, m.state, changed)
				}
				if changed && next == StateFailed {
					m.cause = cause
				}
				m.state = next
				if state != next {
					t.Fatalf("Signal(%v) leads to %v; want %v", event, state, next)
				}
			},
			"retire": func(t *rapid.T) {
				m.state = After(After(m.state, EventDestroyDone), EventAbortDone)
				want := m.state.Gone() && !retired
				if got := life.Retire(); got != want {
					t.Fatalf("Retire() in state %v = %v; want %v", m.state, got, want)
				}
				retired = retired || want
				found, err := registry.Lookup(life.Handle())
				if retired != (err != nil) || (found == life) == retired {
					t.Fatalf("Lookup of a life that has retired (%v) gives %v, %v", retired, found, err)
				}
			},
		})
	})
}

// TestLifeOnlyGoesOn checks that no table allows a way back.
func TestLifeOnlyGoesOn(t *testing.T) {
	reach := map[State]map[State]bool{}
	for _, s := range States() {
		reach[s] = map[State]bool{}
		for _, c := range Calls() {
			if to, code := Next(s, c); code != CodeOK && to != s {
				t.Errorf("%v is refused in state %v and still leads to %v", c, s, to)
			} else if to != s {
				reach[s][to] = true
			}
		}
		for _, e := range Events() {
			if to := After(s, e); to != s {
				reach[s][to] = true
			}
		}
	}
	for range States() { // transitive closure
		for _, from := range States() {
			for via := range reach[from] {
				for to := range reach[via] {
					reach[from][to] = true
				}
			}
		}
	}
	for _, s := range States() {
		if reach[s][s] {
			t.Errorf("a communicator can come back to state %v", s)
		}
		if s != StateNone && !reach[StateNone][s] {
			t.Errorf("no communicator ever comes to state %v", s)
		}
		if s.Gone() == reach[s][StateAborted] && s != StateAborted {
			t.Errorf("state %v: gone is %v, and abortable is %v", s, s.Gone(), reach[s][StateAborted])
		}
	}
}

// race runs one function per goroutine, all started at once, and waits for them.
func race(functions ...func()) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for _, f := range functions {
		wg.Go(func() {
			<-start
			f()
		})
	}
	close(start)
	wg.Wait()
}

// TestOneDestroyWins races destroys against each other and against operations, a thousand times.
func TestOneDestroyWins(t *testing.T) {
	const destroyers, users = 6, 2
	registry := NewRegistry()
	for range 1000 {
		life := ready(registry)
		errs := make([]error, destroyers)
		var racers []func()
		for i := range destroyers {
			racers = append(racers, func() {
				_, errs[i] = life.Do(CallDestroy, Site{Func: "main.destroy", File: "race.go", Line: i + 1})
			})
		}
		for range users {
			racers = append(racers, func() {
				err := life.Check(CallAllReduce)
				if err != nil && !errors.Is(err, ErrDestroyed) {
					t.Errorf("an operation got %v", err)
				}
			})
		}
		race(racers...)
		winner := -1
		for i, err := range errs {
			if err == nil {
				if winner >= 0 {
					t.Fatalf("destroys %d and %d both won", winner, i)
				}
				winner = i
			}
		}
		if winner < 0 {
			t.Fatalf("no destroy won: %v", errs)
		}
		for i, err := range errs {
			var refused *UsageError
			if i != winner &&
				(!errors.As(err, &refused) || refused.Code != CodeDestroyed || refused.First.Line != winner+1) {
				t.Fatalf("destroy %d won, and destroy %d got %v", winner, i, err)
			}
		}
		if !life.Retire() {
			t.Fatal("the destroyed life did not retire")
		}
	}
	if n := len(live(registry)); n != 0 {
		t.Errorf("%d lives are left", n)
	}
}

// TestRacedEndings races all ways to end a communicator, a thousand times. Each takes effect at most once, the last
// state shows which did, and the error of a refused call names a call that took effect.
func TestRacedEndings(t *testing.T) {
	endings := []Call{CallRevoke, CallFinalize, CallDestroy, CallAbort}
	registry := NewRegistry()
	for range 1000 {
		life := ready(registry)
		var mu sync.Mutex
		won := map[Call]int{}
		var refused []error
		var racers []func()
		for range 2 {
			for i, call := range endings {
				racers = append(racers, func() {
					_, err := life.Do(call, Site{Func: "main.end", File: "race.go", Line: i + 1})
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won[call]++
					} else {
						refused = append(refused, err)
					}
				})
			}
		}
		racers = append(racers,
			func() { life.Signal(EventFinalizeDone, nil) },
			func() { life.Signal(EventAsyncFailure, ErrRankDead) })
		race(racers...)
		for call, n := range won {
			if n > 1 {
				t.Fatalf("%v took effect %d times", call, n)
			}
		}
		if won[CallAbort] != 1 || life.State() != StateAborting {
			t.Fatalf("abort is legal to the end; it took effect %d times, and the state is %v",
				won[CallAbort], life.State())
		}
		for _, err := range refused {
			var usage *UsageError
			if !errors.As(err, &usage) {
				t.Fatalf("a refused call got %v", err)
			}
			if usage.Code == CodeFailed {
				if !errors.Is(err, ErrRankDead) {
					t.Fatalf("a failure without its cause: %v", err)
				}
				continue
			}
			if usage.First.Line == 0 || won[endings[usage.First.Line-1]] != 1 {
				t.Fatalf("a call was refused because of one that did not take effect: %v", err)
			}
		}
		if !life.Retire() {
			t.Fatal("the aborted life did not retire")
		}
	}
}

func TestCheckDoesNotAllocate(t *testing.T) {
	life := ready(NewRegistry())
	if n := testing.AllocsPerRun(1000, func() {
		if err := life.Check(CallAllReduce); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Check allocates %v times", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	life := ready(NewRegistry())
	b.ReportAllocs()
	for b.Loop() {
		if err := life.Check(CallAllReduce); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckParallel(b *testing.B) {
	life := ready(NewRegistry())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := life.Check(CallAllReduce); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkCheckRefused(b *testing.B) {
	life := ready(NewRegistry())
	if _, err := life.Do(CallDestroy, Caller("")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := life.Check(CallAllReduce); err == nil {
			b.Fatal("an operation on a destroyed communicator is legal")
		}
	}
}

func BenchmarkCaller(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if Caller("").Line == 0 {
			b.Fatal("no line")
		}
	}
}

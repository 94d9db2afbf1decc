package lifecycle_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// A communicator is destroyed twice: the error of the second Destroy says where the first one was, and nothing changes.
func ExampleLife() {
	registry := lifecycle.NewRegistry()
	life := registry.Open(lifecycle.Info{
		ID: lifecycle.CommID{0x9f, 0x86}, Name: "dp", Rank: 2, Size: 8,
		Call: lifecycle.CallInitRank,
	})
	life.Signal(lifecycle.EventInitDone, nil)
	fmt.Println(life.State(), life.Check(lifecycle.CallAllReduce))

	first := lifecycle.Site{
		Func: "main.train", File: "train.go", Line: 42, Goroutine: 7,
		Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
	if _, err := life.Do(lifecycle.CallDestroy, first); err == nil {
		// Only the one that gets here waits for the operations in flight and frees the resources.
		life.Signal(lifecycle.EventDestroyDone, nil)
		life.Retire()
	}

	_, err := life.Do(lifecycle.CallDestroy, lifecycle.Caller(""))
	var usage *lifecycle.UsageError
	fmt.Println(errors.Is(err, lifecycle.ErrDestroyed), errors.As(err, &usage))
	fmt.Println(usage.First)
	fmt.Println(usage.Detail)
	// Output:
	// ready <nil>
	// true true
	// main.train (train.go:42), goroutine 7
	// destroy a communicator once, or use Close, which may be called any number of times
}

// The rules can be looked up without a communicator.
func ExampleNext() {
	for _, call := range []lifecycle.Call{lifecycle.CallAllReduce, lifecycle.CallFinalize, lifecycle.CallDestroy} {
		for _, state := range []lifecycle.State{lifecycle.StateReady, lifecycle.StateFinalized} {
			next, code := lifecycle.Next(state, call)
			fmt.Printf("%v when %v: %v, then %v\n", call, state, code, next)
		}
	}
	// Output:
	// all_reduce when ready: ok, then ready
	// all_reduce when finalized: finalized, then finalized
	// finalize when ready: ok, then finalizing
	// finalize when finalized: finalized, then finalized
	// destroy when ready: ok, then destroying
	// destroy when finalized: ok, then destroying
}

// One rank makes the id, and its text travels to the others. A log shows it without the secret.
func ExampleParseUniqueID() {
	made, err := lifecycle.UniqueIDFromSecret([]byte("the launcher's secret"), "node0:29500")
	if err != nil {
		fmt.Println(err)
		return
	}
	text := made.String()

	id, err := lifecycle.ParseUniqueID(text)
	fmt.Println(id == made, err)
	fmt.Println(id.Address())
	fmt.Println(id.Redacted())

	_, err = lifecycle.ParseUniqueID(text[:60])
	fmt.Println(err)
	// Output:
	// true <nil>
	// node0:29500
	// carillon1.7dc45e727e597378dd23ede2351823c5.redacted@node0:29500
	// invalid argument: a unique id's text has 3 parts between "carillon1." and the @; this one has 2; was it cut off?
}

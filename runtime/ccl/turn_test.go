package ccl

import (
	"context"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Only one holder at a time has the turn, whether it was free or waited for, and no waiter is forgotten when others
// step out.
func TestTurnIsOneCallers(t *testing.T) {
	const callers, rounds = 8, 3000
	var tn turn
	var wg sync.WaitGroup
	inside, total := 0, 0 // guarded by the turn
	for i := range callers {
		wg.Go(func() {
			for k := range rounds {
				if !tn.tryTake(lifecycle.CallBarrier) {
					ctx, stop := context.WithCancel(t.Context())
					place := tn.line(lifecycle.CallBarrier)
					if (i+k)%3 == 0 {
						stop()
					}
					err := tn.wait(ctx, place)
					stop()
					if err != nil {
						continue
					}
				}
				if inside++; inside != 1 {
					t.Errorf("%d have the turn", inside)
				}
				total++
				inside--
				tn.leave()
			}
		})
	}
	wg.Wait()
	if total < callers*rounds/3 || tn.state.Load() != free || len(tn.waiting) != 0 {
		t.Errorf("%d turns; at the end the state is %#x, and %d wait", total, tn.state.Load(), len(tn.waiting))
	}
}

func TestTurnPassesInOrder(t *testing.T) {
	var tn turn
	if !tn.tryTake(lifecycle.CallAllReduce) || tn.tryTake(lifecycle.CallBarrier) {
		t.Fatal("a free turn is not one caller's")
	}
	second, third := tn.line(lifecycle.CallBroadcast), tn.line(lifecycle.CallReduce)
	gone, stop := context.WithCancel(t.Context())
	stop()
	if err := tn.wait(gone, tn.line(lifecycle.CallGather)); err == nil {
		t.Fatal("a caller whose context has ended got the turn")
	}
	if got := tn.calls(); len(got) != 3 || got[0] != lifecycle.CallAllReduce.String() {
		t.Errorf("the holder and the line are %v", got)
	}
	for _, place := range []*ticket{second, third} {
		tn.leave()
		if err := tn.wait(t.Context(), place); err != nil || tn.tryTake(lifecycle.CallBarrier) {
			t.Errorf("%v does not have the turn it was passed: %v", place.call, err)
		}
	}
	tn.leave()
	if tn.calls() != nil || !tn.tryTake(lifecycle.CallBarrier) {
		t.Error("the turn is not free when the last has left")
	}
}

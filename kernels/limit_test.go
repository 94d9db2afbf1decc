package kernels

import (
	"sync"
	"testing"
)

func TestLimitSIMD(t *testing.T) {
	t.Cleanup(func() { LimitSIMD(numSIMD - 1) })
	if got := activeSIMD(); got != DetectSIMD() {
		t.Errorf("without a limit %v is used, want %v, all there is", got, DetectSIMD())
	}
	for s := range numSIMD {
		want := min(s, DetectSIMD())
		if got := LimitSIMD(s); got != want || activeSIMD() != want {
			t.Errorf("limited to %v: %v, then %v, want %v", s, got, activeSIMD(), want)
		}
	}
	if got := LimitSIMD(200); got != DetectSIMD() {
		t.Errorf("limited to what there is not: %v", got)
	}
}

// TestLookUpsWhileTheLimitMoves is for the race detector, and checks that a result never depends on the limit.
func TestLookUpsWhileTheLimitMoves(t *testing.T) {
	t.Cleanup(func() { LimitSIMD(numSIMD - 1) })
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			a, d := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, make([]float32, 9)
			for i := range 1000 {
				LimitSIMD(SIMD(i+g) % numSIMD)
				ReducerOf(Float32, Sum)(Bytes(d), Bytes(a), Bytes(a))
				if d[0] != 2 || d[8] != 18 {
					t.Errorf("got %v", d)
					return
				}
			}
		})
	}
	wg.Wait()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

var defaults = settings{epochs: 30, seed: 1}

// meeting sums the numbers of size goroutines, in rank order.
type meeting struct {
	mu      sync.Mutex
	all     sync.Cond
	size    int
	arrived int
	round   int
	sum     []float32
	parts   [][]float32
}

func newMeeting(size int) *meeting {
	m := &meeting{size: size, parts: make([][]float32, size)}
	m.all.L = &m.mu
	return m
}

func (m *meeting) reducer(rank int) reducer {
	return func(_ context.Context, numbers []float32) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.parts[rank] = numbers
		m.arrived++
		round := m.round
		if m.arrived == m.size {
			m.sum = make([]float32, len(numbers))
			for _, part := range m.parts {
				addScaled(m.sum, part, 1)
			}
			m.arrived = 0
			m.round++
			m.all.Broadcast()
		}
		for m.round == round {
			m.all.Wait()
		}
		copy(numbers, m.sum)
		return nil
	}
}

// trained returns the replicas of all ranks after training, and the last progress.
func trained(t *testing.T, s settings, size int) ([]*trainer, progress) {
	t.Helper()
	train, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	m := newMeeting(size)
	trainers := make([]*trainer, size)
	var last progress
	var wait sync.WaitGroup
	for rank := range trainers {
		trainers[rank] = newTrainer(s, train, test)
		trainers[rank].join(rank, size, m.reducer(rank))
		wait.Go(func() {
			err := trainers[rank].run(t.Context(), func(p progress) {
				if rank == 0 {
					last = p
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	return trainers, last
}

func TestLearnsTheDigits(t *testing.T) {
	_, last := trained(t, defaults, 1)
	t.Logf("%+v", last)
	if last.accuracy < 0.95 || last.epoch != defaults.epochs {
		t.Errorf("%+v, want an accuracy of 0.95", last)
	}
}

func TestAnyNumberOfRanksLearnsTheSame(t *testing.T) {
	s := defaults
	s.epochs = 10
	one, _ := trained(t, s, 1)
	for _, size := range []int{2, 3, 4, 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			many, _ := trained(t, s, size)
			var furthest float64
			for i, w := range many[0].model.params {
				furthest = max(furthest, math.Abs(float64(w-one[0].model.params[i])))
			}
			t.Logf("weights differ by %.2g", furthest)
			if furthest > 1e-5 {
				t.Errorf("weights differ by %g from those of one rank", furthest)
			}
			for rank, r := range many {
				if !slices.Equal(r.model.params, many[0].model.params) {
					t.Errorf("rank %d has other weights than rank 0", rank)
				}
			}
		})
	}
}

func TestGradientIsTheSlopeOfTheLoss(t *testing.T) {
	train, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(3)
	var a activations
	grad := make([]float32, numParams)
	m.addGradient(&train[0], 1, layersOf(grad), &a)
	loss := func() float64 {
		m.forward(&train[0], &a)
		return -math.Log(float64(a.probs[train[0].digit]))
	}
	const step = 1e-2
	for i := 0; i < numParams; i += 37 { // some parameters of every layer
		old := m.params[i]
		m.params[i] = old + step
		above := loss()
		m.params[i] = old - step
		below := loss()
		m.params[i] = old
		slope := (above - below) / (2 * step)
		if math.Abs(slope-float64(grad[i])) > 1e-3 {
			t.Errorf("parameter %d: gradient %g, slope %g", i, grad[i], slope)
		}
	}
}

func TestShardsAreAllAndNothingTwice(t *testing.T) {
	for n := range 20 {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		for size := 1; size <= 7; size++ {
			var joined []int
			for rank := range size {
				part := shard(all, rank, size)
				if len(part) < n/size || len(part) > (n+size-1)/size {
					t.Errorf("rank %d of %d has %d of %d", rank, size, len(part), n)
				}
				joined = append(joined, part...)
			}
			if !slices.Equal(joined, all) {
				t.Errorf("%d ranks have %v of %d", size, joined, n)
			}
		}
	}
}

func TestFifthIsHeldOut(t *testing.T) {
	train, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(train) != 1438 || len(test) != 359 {
		t.Errorf("%d samples to train and %d to test", len(train), len(test))
	}
	again, _, err := load()
	if err != nil || !slices.Equal(train, again) {
		t.Errorf("another order on the second call; %v", err)
	}
	var seen [classes]int
	for _, s := range test {
		seen[s.digit]++
	}
	if slices.Min(seen[:]) < 20 {
		t.Errorf("digits in the held-out fifth: %v", seen)
	}
}

func TestParseNamesThePlace(t *testing.T) {
	line := func(field string) string { return strings.Repeat("0,", 10) + field + strings.Repeat(",0", 54) + "\n" }
	for text, want := range map[string]string{
		line("0") + line("17"):          `line 2, column 21: "17" is not a number from 0 to 16`,
		line("x"):                       `line 1, column 21: "x" is not`,
		strings.Repeat("0,", 64) + "10": `"10" is not a number from 0 to 9`,
		"1,2\n":                         "wrong number of fields",
	} {
		if _, err := parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestTrainingEndsWithTheReducersError(t *testing.T) {
	train, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("rank 1 is gone")
	calls := 0
	r := newTrainer(defaults, train, test)
	r.join(0, 2, func(context.Context, []float32) error {
		if calls++; calls == 40 {
			return gone
		}
		return nil
	})
	if err := r.run(t.Context(), func(progress) {}); !errors.Is(err, gone) || calls != 40 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// A run whose reducer fails now and then, and that is called again after each failure, learns the same as one whose
// reducer never fails.
func TestTrainingGoesOnAfterTheLastStep(t *testing.T) {
	s := defaults
	s.epochs = 3
	want, last := trained(t, s, 1)
	train, test, err := load()
	if err != nil {
		t.Fatal(err)
	}
	flaky := errors.New("flaky")
	calls, failures, reports := 0, 0, 0
	r := newTrainer(s, train, test)
	r.join(0, 1, func(context.Context, []float32) error {
		if calls++; calls%5 == 0 {
			return flaky
		}
		return nil
	})
	for {
		err := r.run(t.Context(), func(p progress) {
			if reports++; p.epoch == s.epochs && p != last {
				t.Errorf("%+v, want %+v", p, last)
			}
		})
		if err == nil {
			break
		}
		if failures++; !errors.Is(err, flaky) {
			t.Fatal(err)
		}
	}
	if !slices.Equal(r.model.params, want[0].model.params) || reports != s.epochs || failures < 10 {
		t.Errorf("other weights, or %d reports, after %d failures", reports, failures)
	}
}

func BenchmarkEpoch(b *testing.B) {
	train, test, err := load()
	if err != nil {
		b.Fatal(err)
	}
	r := newTrainer(defaults, train, test)
	r.join(0, 1, func(context.Context, []float32) error { return nil })
	for b.Loop() {
		r.steps = 0
		if _, err := r.finishEpoch(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

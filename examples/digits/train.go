package main

import (
	"context"
	"math/rand/v2"
)

// reducer replaces every number by its sum over all ranks. All ranks call it in the same order.
type reducer func(ctx context.Context, numbers []float32) error

// settings are what all ranks of a job must agree on.
type settings struct {
	epochs   int
	batch    int     // samples of one step, over all ranks
	rate     float32 // how far a step goes
	momentum float32
	seed     uint64
}

// trainer trains one rank's replica of the model. All replicas start alike and take the same steps, so they stay alike.
type trainer struct {
	settings
	rank, size  int
	reduce      reducer
	train, test []sample

	model    *model
	grad     []float32
	velocity []float32
	scratch  activations
}

func newTrainer(s settings, rank, size int, train, test []sample, reduce reducer) *trainer {
	return &trainer{
		settings: s, rank: rank, size: size, reduce: reduce, train: train, test: test,
		model:    newModel(s.seed),
		grad:     make([]float32, numParams),
		velocity: make([]float32, numParams),
	}
}

// progress is what an epoch came to, over all ranks.
type progress struct {
	epoch    int
	loss     float64 // mean over the training samples, each seen with the weights of its step
	accuracy float64 // on the held-out fifth, from 0 to 1
}

// run trains for all epochs, and calls report after each.
func (t *trainer) run(ctx context.Context, report func(progress)) error {
	for epoch := range t.epochs {
		loss, err := t.epoch(ctx, epoch)
		if err != nil {
			return err
		}
		accuracy, err := t.evaluate(ctx)
		if err != nil {
			return err
		}
		report(progress{epoch: epoch + 1, loss: loss, accuracy: accuracy})
	}
	return nil
}

// epoch goes once through the training samples, in an order that is the epoch's own and the same on all ranks.
func (t *trainer) epoch(ctx context.Context, epoch int) (meanLoss float64, err error) {
	order := rand.New(rand.NewPCG(t.seed, uint64(epoch)+1)).Perm(len(t.train))
	var sum float32
	for len(order) > 0 {
		batch := order[:min(t.batch, len(order))]
		order = order[len(batch):]
		loss, err := t.step(ctx, batch)
		if err != nil {
			return 0, err
		}
		sum += loss
	}
	total := []float32{sum}
	if err := t.reduce(ctx, total); err != nil {
		return 0, err
	}
	return float64(total[0]) / float64(len(t.train)), nil
}

// step takes one step down the gradient of a batch, and returns the sum of the losses of this rank's samples.
//
// Each sample's gradient is weighted with the size of the whole batch, so that the sum over the ranks is the gradient
// of the batch however its samples are shared out, evenly or not. It is the same step for any number of ranks, up to
// the rounding of sums taken in another order.
func (t *trainer) step(ctx context.Context, batch []int) (loss float32, err error) {
	clear(t.grad)
	grad := layersOf(t.grad)
	for _, i := range shard(batch, t.rank, t.size) {
		loss += t.model.addGradient(&t.train[i], 1/float32(len(batch)), grad, &t.scratch)
	}
	if err := t.reduce(ctx, t.grad); err != nil {
		return 0, err
	}
	for i, g := range t.grad {
		t.velocity[i] = t.momentum*t.velocity[i] + g
		t.model.params[i] -= t.rate * t.velocity[i]
	}
	return loss, nil
}

// evaluate returns the part of the held-out samples that the model gets right. Each rank tries its share.
func (t *trainer) evaluate(ctx context.Context) (accuracy float64, err error) {
	right := []float32{0}
	for i := range shard(t.test, t.rank, t.size) {
		s := &shard(t.test, t.rank, t.size)[i]
		if t.model.forward(s, &t.scratch); t.scratch.guess() == s.digit {
			right[0]++
		}
	}
	if err := t.reduce(ctx, right); err != nil {
		return 0, err
	}
	return float64(right[0]) / float64(len(t.test)), nil
}

// shard returns a rank's part of all, as equal to the others' as can be, and together they are all. It may be empty.
func shard[T any](all []T, rank, size int) []T {
	return all[rank*len(all)/size : (rank+1)*len(all)/size]
}

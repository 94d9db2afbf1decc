package main

import (
	"context"
	"math/rand/v2"
)

// reducer replaces each number by its sum over all ranks. All ranks call it in the same order.
type reducer func(ctx context.Context, numbers []float32) error

const (
	batchSize = 64   // samples of one step, over all ranks
	rate      = 0.05 // the learning rate
	momentum  = 0.9  // the share of the last step's velocity that the next one keeps
)

// settings are the same on all ranks of a job.
type settings struct {
	epochs  int
	seed    uint64 // of all random numbers
	elastic bool   // survive the death of ranks
	gpu     bool   // sum on GPUs
	weights string // a file for the trained weights, written by rank 0; or ""
}

// trainer trains one rank's replica of the model. All replicas start alike and take the same steps, so they stay alike.
type trainer struct {
	settings
	rank, size  int
	reduce      reducer
	train, test []sample

	model    *model
	velocity []float32
	epoch    int // how many epochs are done
	steps    int // how many steps were taken, over all epochs

	loss, seen float32 // of this rank's samples in this epoch: the sum of their losses, and their number
	grad       []float32
	scratch    activations
}

func newTrainer(s settings, train, test []sample) *trainer {
	return &trainer{
		settings: s, train: train, test: test,
		model:    newModel(s.seed),
		grad:     make([]float32, numParams),
		velocity: make([]float32, numParams),
	}
}

// join makes the trainer one of size ranks, connected by reduce.
func (t *trainer) join(rank, size int, reduce reducer) { t.rank, t.size, t.reduce = rank, size, reduce }

// progress is the result of an epoch, over all ranks.
type progress struct {
	epoch    int
	loss     float64 // mean over the training samples, each seen with the weights of its step
	accuracy float64 // on the held-out fifth, from 0 to 1
}

// run trains until all epochs are done, and calls report after each. After an error it can be called again, and
// continues after the last completed step.
func (t *trainer) run(ctx context.Context, report func(progress)) error {
	for t.epoch < t.epochs {
		loss, err := t.finishEpoch(ctx)
		if err != nil {
			return err
		}
		accuracy, err := t.evaluate(ctx)
		if err != nil {
			return err
		}
		t.epoch++
		t.loss, t.seen = 0, 0
		report(progress{epoch: t.epoch, loss: loss, accuracy: accuracy})
	}
	return nil
}

// finishEpoch goes through the epoch's remaining samples. Their order differs from epoch to epoch and is the same on
// all ranks.
func (t *trainer) finishEpoch(ctx context.Context) (meanLoss float64, err error) {
	order := rand.New(rand.NewPCG(t.seed, uint64(t.epoch)+1)).Perm(len(t.train))
	perEpoch := (len(order) + batchSize - 1) / batchSize
	for t.steps < (t.epoch+1)*perEpoch {
		from := (t.steps - t.epoch*perEpoch) * batchSize
		if err := t.step(ctx, order[from:min(from+batchSize, len(order))]); err != nil {
			return 0, err
		}
	}
	total := []float32{t.loss, t.seen} // not always all samples: those of a dead rank are lost
	if err := t.reduce(ctx, total); err != nil {
		return 0, err
	}
	return float64(total[0]) / max(float64(total[1]), 1), nil
}

// step takes one step down the gradient of a batch. If it returns an error, it has not changed the model.
//
// Each sample's gradient is divided by the size of the whole batch, so the sum over the ranks is the batch's gradient
// however its samples are distributed. The step is the same for any number of ranks, up to the rounding of sums in
// another order.
func (t *trainer) step(ctx context.Context, batch []int) error {
	clear(t.grad)
	var loss float32
	grad := layersOf(t.grad)
	mine := shard(batch, t.rank, t.size)
	for _, i := range mine {
		loss += t.model.addGradient(&t.train[i], 1/float32(len(batch)), grad, &t.scratch)
	}
	if err := t.reduce(ctx, t.grad); err != nil {
		return err
	}
	for i, g := range t.grad {
		t.velocity[i] = momentum*t.velocity[i] + g
		t.model.params[i] -= rate * t.velocity[i]
	}
	t.steps++
	t.loss += loss
	t.seen += float32(len(mine))
	return nil
}

// evaluate returns the share of the held-out samples that the model gets right. Each rank evaluates some of them.
func (t *trainer) evaluate(ctx context.Context) (accuracy float64, err error) {
	right := []float32{0}
	for _, s := range shard(t.test, t.rank, t.size) {
		if t.model.forward(&s, &t.scratch); t.scratch.guess() == s.digit {
			right[0]++
		}
	}
	if err := t.reduce(ctx, right); err != nil {
		return 0, err
	}
	return float64(right[0]) / float64(len(t.test)), nil
}

// shard returns a rank's part of all. The parts are as equal as possible; one may be empty.
func shard[T any](all []T, rank, size int) []T {
	return all[rank*len(all)/size : (rank+1)*len(all)/size]
}

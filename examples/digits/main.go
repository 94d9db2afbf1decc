// Command digits trains a classifier of handwritten digits on any number of processes: one all-reduce a step.
//
//	carillon run -n 4 -- digits
//
// Every process has a replica of the model and takes its share of each batch. The gradients are summed over all ranks,
// so all replicas take the same step, and the job learns the same weights with any number of ranks. data.go reads the
// digits, model.go is the model, train.go is the training, whose only communication is "sum these numbers over all
// ranks", and this file is where Carillon comes in.
//
// With -elastic, the job survives the death of ranks: the others make a smaller world, agree on the step to continue
// from, and finish. elastic.go has all of that.
//
//	carillon run -n 4 --min-ranks 1 -- digits -elastic
//
// With -gpu, the sums are computed on GPUs, in their memory: each rank uses the GPU with the number of its local rank.
// gpu_linux.go has the difference.
//
//	carillon run -n 4 -- digits -gpu
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err == nil {
		err = run(ctx, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "digits:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (s settings, err error) {
	s.seed = 1
	flags := flag.NewFlagSet("digits", flag.ContinueOnError)
	flags.IntVar(&s.epochs, "epochs", 30, "how often to go through the training samples")
	flags.BoolVar(&s.elastic, "elastic", false,
		"go on with the other ranks when some die (see carillon run --min-ranks)")
	flags.BoolVar(&s.gpu, "gpu", false, "sum the gradients on GPUs, one for each rank of a host")
	flags.StringVar(&s.weights, "weights", "", "a file for the trained weights, as little-endian float32")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("don't know what to do with %q; there are only flags (see -help)", flags.Args())
	case s.epochs < 1:
		return s, fmt.Errorf("-epochs is %d, allowed is 1 or more", s.epochs)
	}
	return s, nil
}

// run is one rank's training, from start to end.
func run(ctx context.Context, s settings) (err error) {
	train, test, err := load()
	if err != nil {
		return err
	}
	// main handles SIGTERM: then ctx ends, and Stop exports what there is.
	opts := []node.Option{node.FromEnv(), node.WithSignals(false)}
	if s.gpu {
		opts = append(opts, node.WithGPU(cuda.Options{}))
	}
	n, err := node.Start(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { // runs even after ctx has ended
		err = errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
	}()

	j := &job{settings: s, trainer: newTrainer(s, train, test), began: time.Now(), sum: sum}
	var placed []ccl.Option
	if s.gpu {
		d, err := newDevice(n.GPU())
		if err != nil {
			return err
		}
		j.sum, placed = d.sum, []ccl.Option{ccl.WithDevice(n.GPU())}
	}

	soon, cancel := context.WithTimeout(ctx, time.Minute) // a rank that has already died never joins
	defer cancel()
	world, err := n.Runtime().World(soon, placed...)
	if err != nil {
		return err
	}
	defer world.Close() // does nothing after Destroy; after an error, that error says more
	if world.Rank() == 0 {
		sums := "" // where the sums are computed, unless on the host
		if s.gpu {
			sums = ", sums on GPUs"
		}
		fmt.Printf("world of %d on %s%s, training on %d digits; health of rank 0: %s\n", world.Size(),
			english.Plural(len(world.Topology().Ranks), "node", ""), sums, len(train), n.HealthURL())
	}
	if s.elastic {
		return j.outlive(ctx, world)
	}
	return j.work(ctx, world, func() {})
}

type job struct {
	settings
	trainer *trainer
	began   time.Time
	sum     func(ctx context.Context, world *ccl.Comm, numbers []float32) error
}

// sum replaces numbers by their sums over all ranks.
func sum(ctx context.Context, world *ccl.Comm, numbers []float32) error {
	return ccl.AllReduce(ctx, world, numbers, numbers, ccl.Sum)
}

// work trains to the end with the ranks of world, starting where the most advanced rank is, and destroys world. It
// calls ready once all ranks have joined.
func (j *job) work(ctx context.Context, world *ccl.Comm, ready func()) (err error) {
	nodes, rails, err := split(ctx, world)
	defer func() {
		if err != nil { // other ranks may wait for this one
			_ = errors.Join(nodes.Abort(err), rails.Abort(err))
		}
	}()
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		if world.Rank() == 0 {
			fmt.Printf(format+"\n", args...)
		}
	}

	t := j.trainer
	t.join(world.Rank(), world.Size(), func(ctx context.Context, numbers []float32) error {
		return j.sum(ctx, world, numbers)
	})
	if err := catchUp(ctx, world, t); err != nil {
		return err
	}
	ready()
	err = t.run(ctx, func(p progress) {
		say("epoch %2d of %d: loss %.4f, %.1f %% of the held-out digits right, %s",
			p.epoch, j.epochs, p.loss, 100*p.accuracy, words.Round(time.Since(j.began)))
	})
	if err != nil {
		return err
	}
	accuracy, err := t.evaluate(ctx)
	if err != nil {
		return err
	}
	for _, comm := range []*ccl.Comm{nodes, rails} {
		if err := checkReplicas(ctx, comm, t.model); err != nil {
			return err
		}
	}
	say("%s, bit by bit the same; %.1f %% of %d digits never seen before are right",
		english.Plural(world.Size(), "replica", ""), 100*accuracy, len(t.test))
	if j.weights != "" && world.Rank() == 0 {
		if err := save(j.weights, t.model); err != nil {
			return err
		}
	}
	for _, comm := range []*ccl.Comm{rails, nodes, world} {
		if err := comm.Destroy(ctx); err != nil {
			return err
		}
	}
	return nil
}

// catchUp brings all ranks to the epoch and step of the most advanced one, with its weights and velocity. At the start,
// that is rank 0 at its first step.
func catchUp(ctx context.Context, world *ccl.Comm, t *trainer) error {
	places := make([]int64, 2*world.Size())
	if err := ccl.AllGather(ctx, world, []int64{int64(t.steps), int64(t.epoch)}, places); err != nil {
		return err
	}
	furthest := 0
	for rank := range world.Size() {
		if slices.Compare(places[2*rank:2*rank+2], places[2*furthest:2*furthest+2]) > 0 {
			furthest = rank
		}
	}
	// A copy, so that every rank keeps the weights of its own step if this fails.
	state := slices.Concat(t.model.params, t.velocity)
	if err := ccl.Broadcast(ctx, world, state, state, furthest); err != nil {
		return err
	}
	copy(t.velocity, state[copy(t.model.params, state):])
	steps, epoch := int(places[2*furthest]), int(places[2*furthest+1])
	if epoch != t.epoch {
		t.loss, t.seen = 0, 0
	}
	t.steps, t.epoch = steps, epoch
	return nil
}

// split makes two communicators from the world, as programs for many GPUs do: one of the ranks of each node, and one of
// each rail, which has the ranks with the same index on their nodes. After an error, it still returns the communicators
// that it has made.
func split(ctx context.Context, world *ccl.Comm) (nodes, rails *ccl.Comm, err error) {
	where := world.Topology()
	mine := where.Node[world.Rank()]
	place := slices.Index(where.Ranks[mine], world.Rank())

	if err := ccl.Barrier(ctx, world); err != nil {
		return nil, nil, err
	}
	if rails, err = world.Split(ctx, place, world.Rank(), ccl.WithName("rails")); err != nil {
		return nil, nil, err
	}
	if err := ccl.Barrier(ctx, world); err != nil {
		return nil, rails, err
	}
	if nodes, err = world.Split(ctx, mine, world.Rank(), ccl.WithName("nodes")); err != nil {
		return nil, rails, err
	}
	return nodes, rails, ccl.Barrier(ctx, world)
}

// checkReplicas compares the replicas of a communicator's ranks. They must be identical bit for bit, as all ranks added
// the same sums to the same weights.
func checkReplicas(ctx context.Context, comm *ccl.Comm, m *model) error {
	sum := fnv.New64a()
	var word [4]byte
	for _, p := range m.params {
		binary.LittleEndian.PutUint32(word[:], math.Float32bits(p))
		sum.Write(word[:])
	}
	sums := make([]uint64, comm.Size())
	if err := ccl.AllGather(ctx, comm, []uint64{sum.Sum64()}, sums); err != nil {
		return err
	}
	for rank, s := range sums {
		if s != sums[0] {
			return fmt.Errorf("on communicator %q, rank %d learnt other weights than rank 0", comm.Name(), rank)
		}
	}
	return nil
}

func save(path string, m *model) error {
	buf, err := binary.Append(nil, binary.LittleEndian, m.params)
	if err != nil {
		return err
	}
	return os.WriteFile(path, buf, 0o644)
}

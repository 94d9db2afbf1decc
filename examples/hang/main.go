// Command hang hangs, so that you can look at a hang: several ranks are in an all-reduce, and one of them is not. The
// data loader of that rank delivers nothing, so the rank waits for its next batch and never makes the call; the other
// ranks wait for it.
//
//	bin/carillon run -n 4 -- bin/hang
//
// It prints the commands that show the hang while it lasts: in Jaeger, in the metrics, on the health page, and in the
// post-mortem of the tapes. After a minute (see -for) the loader delivers, the rank makes its call, and the job
// completes; ^C ends it sooner.
//
// This file is a rank, with nothing special in it; show.go has the commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
)

type settings struct {
	lasts   time.Duration // how long the hang lasts
	missing int           // the rank that doesn't make the call
	jaeger  string        // where its HTTP API is
}

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
	if ctx.Err() != nil {
		return // it was interrupted
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hang:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("hang", flag.ContinueOnError)
	flags.DurationVar(&s.lasts, "for", time.Minute, "how long to hang")
	flags.IntVar(&s.missing, "missing", 2, "the rank that doesn't make the call")
	flags.StringVar(&s.jaeger, "jaeger", "http://localhost:16686", "the address of Jaeger's API")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("don't know what to do with %q; there are only flags (see -help)", flags.Args())
	case s.lasts <= 0:
		return s, fmt.Errorf("-for is %v, allowed is more than 0", s.lasts)
	case s.missing < 0:
		return s, fmt.Errorf("-missing is %d, allowed is a rank, from 0", s.missing)
	}
	return s, nil
}

func run(ctx context.Context, s settings) (err error) {
	// main handles SIGTERM: then ctx ends, and Stop exports what there is.
	n, err := node.Start(ctx, node.FromEnv(), node.WithSignals(false))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(context.WithoutCancel(ctx))) }()
	world, err := n.Runtime().World(ctx)
	if err != nil {
		return err
	}
	defer world.Close()
	if world.Size() < 2 {
		return errors.New("a single rank waits for nobody: start four with carillon run -n 4 -- bin/hang")
	}
	if s.missing >= world.Size() {
		return fmt.Errorf("-missing is %d, and the world has %d ranks", s.missing, world.Size())
	}

	pids := make([]int64, world.Size())
	if err := ccl.AllGather(ctx, world, []int64{int64(os.Getpid())}, pids); err != nil {
		return err
	}
	r := &rank{settings: s, world: world, began: time.Now()}
	if world.Rank() == 0 {
		r.show(n.HealthURL(), pids[s.missing])
	}
	if err := r.step(ctx); err != nil {
		return fmt.Errorf("rank %d: %w", world.Rank(), err)
	}
	if world.Rank() == 0 {
		r.showAfter()
	}
	return world.Destroy(ctx)
}

type rank struct {
	settings
	world *ccl.Comm
	began time.Time
}

// step is a step of training: get a batch, and sum the result over all ranks.
func (r *rank) step(ctx context.Context) error {
	batch, err := r.load(ctx)
	if err != nil {
		return err
	}
	done := r.progress("is in the all-reduce, which waits for all ranks")
	err = ccl.AllReduce(ctx, r.world, batch, batch, ccl.Sum)
	done()
	if err != nil {
		return err
	}
	r.say("has the sum")
	return nil
}

// load gets the next batch. One rank's loader takes very long.
func (r *rank) load(ctx context.Context) ([]float32, error) {
	batch := make([]float32, 1<<18)
	if r.world.Rank() != r.missing {
		return batch, nil
	}
	delivered := time.NewTimer(r.lasts)
	defer delivered.Stop()
	defer r.progress("waits for its data loader, and has not made the call")()
	select {
	case <-delivered.C:
		return batch, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

const progressEvery = 5 * time.Second

// progress prints from time to time what the rank is doing, until done is called.
func (r *rank) progress(what string) (done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var saying sync.WaitGroup
	r.say(what)
	saying.Go(func() {
		again := time.NewTicker(progressEvery)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				r.say(what)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		saying.Wait()
	}
}

func (r *rank) say(what string) {
	fmt.Printf("%6.1f s  rank %d %s\n", time.Since(r.began).Seconds(), r.world.Rank(), what)
}

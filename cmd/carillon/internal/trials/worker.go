package trials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/jobsim/corpus"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// scale is how much faster than in virtual time a trial runs.
const scale = 5

// Command is the hidden command that runs one process of a trial.
const Command = "process"

// Process runs one process of a trial, with the arguments of Command: the folder that the process shares with the
// driver, and the parameters of the trial. It returns only if the arguments can't be used.
func Process(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("want a folder, a seed, a number of ranks and a kind")
	}
	seed, err := strconv.ParseUint(args[1], 10, 64)
	most, alsoErr := strconv.Atoi(args[2])
	kind := corpus.KindOf(args[3])
	if err := errors.Join(err, alsoErr); err != nil || kind == nil {
		return fmt.Errorf("no such trial: %q", args[1:])
	}
	folder, trial := args[0], corpus.Draw(seed, most, kind)
	n, err := node.Start(context.Background(), node.FromEnv())
	if err != nil {
		return err
	}
	index, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return err
	}
	w := &worker{trial: trial, folder: folder, node: n, index: index}
	w.announce()
	w.ranks.Add(trial.Layout.PerProcess)
	for i := range trial.Layout.PerProcess {
		go w.run(index*trial.Layout.PerProcess + i)
	}
	select {}
}

type worker struct {
	trial   *corpus.Trial
	folder  string
	node    *node.Node
	index   int
	ranks   sync.WaitGroup // ranks that have not ended their programs
	leaving atomic.Int32
	noting  sync.Mutex // guards the trial's faults
	noted   [2]bool    // the faults that have begun
}

// announce writes the process's pid for the driver and, for the other processes, the id of the world communicator.
func (w *worker) announce() {
	w.write(fmt.Sprintf("pid-%d", w.index), strconv.Itoa(os.Getpid()))
	if w.index != 0 || w.trial.Layout.PerProcess == 1 {
		return
	}
	if id, err := w.node.Runtime().NewUniqueID(); err == nil {
		w.write("id", id.String())
	}
}

func (w *worker) write(name, text string) {
	temporary := filepath.Join(w.folder, fmt.Sprintf(".%s.%d", name, w.index))
	err := os.WriteFile(temporary, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(temporary, filepath.Join(w.folder, name))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func now() int64 { return time.Now().UnixNano() }

type rank struct {
	*worker
	number int
	mu     sync.Mutex
	comms  map[string]*ccl.Comm
	gates  map[*jobsim.Gate]chan struct{}
}

func (w *worker) run(number int) {
	r := &rank{worker: w, number: number, comms: map[string]*ccl.Comm{}, gates: map[*jobsim.Gate]chan struct{}{}}
	for _, program := range w.trial.Program(number, now) {
		go func() {
			t := &thread{rank: r}
			for i := w.next(program); i != nil; i = w.next(program) {
				if err := t.do(i); err != nil {
					w.failed(err)
				}
			}
		}()
	}
}

func (w *worker) next(program jobsim.Program) jobsim.Instruction {
	w.noting.Lock()
	defer w.noting.Unlock()
	return program()
}

func (w *worker) failed(err error) {
	fmt.Fprintln(os.Stderr, err)
	switch w.trial.Errors {
	case jobsim.Exit:
		os.Exit(1)
	case jobsim.Close:
		w.leave(1)
	case jobsim.Stay, jobsim.GoOn:
		select {}
	}
}

func (w *worker) leave(code int) {
	if !w.leaving.CompareAndSwap(0, 1) {
		select {} // another rank ends the process
	}
	_ = w.node.Stop(context.Background()) // it ends either way
	os.Exit(code)
}

// begin calls do, which may start a fault, and tells the driver if it did.
func (w *worker) begin(do func()) {
	w.noting.Lock()
	defer w.noting.Unlock()
	do()
	for i := range w.trial.Faults {
		if since := w.trial.Faults[i].Since; since > 0 && !w.noted[i] {
			w.noted[i] = true
			w.write(fmt.Sprintf("fault-%d-%d", i, w.index), strconv.FormatInt(since, 10))
		}
	}
}

type thread struct {
	*rank
	works []*ccl.Work
}

func (t *thread) comm(name string) *ccl.Comm {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.comms[name]
}

func (t *thread) keep(name string, c *ccl.Comm, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.comms[name] = c
	return err
}

// gate is a gate's channel. It has an element for each time that the gate was opened but not yet passed.
func (t *thread) gate(g *jobsim.Gate) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gates[g] == nil {
		t.gates[g] = make(chan struct{}, 1<<10)
	}
	return t.gates[g]
}

func (t *thread) do(i jobsim.Instruction) error {
	ctx := context.Background()
	switch i := i.(type) {
	case jobsim.Compute:
		time.Sleep(i.For / scale)
	case jobsim.Hang:
		select {}
	case jobsim.Do:
		t.begin(i.F)
	case jobsim.Open:
		t.gate(i.Gate) <- struct{}{}
	case jobsim.Pass:
		<-t.gate(i.Gate)
	case jobsim.Init:
		c, err := t.world(ctx)
		return t.keep("world", c, err)
	case jobsim.Split:
		c, err := t.comm(i.Comm).Split(ctx, i.Color, t.number, ccl.WithName(i.Name))
		return t.keep(i.Name, c, err)
	case jobsim.Call:
		if i.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, i.Timeout/scale)
			defer cancel()
		}
		if i.Async && i.Sig.Call == lifecycle.CallAllReduce {
			t.works = append(t.works, launch(t.comm(i.Comm), i.Sig))
			return nil
		}
		return call(ctx, t.comm(i.Comm), i.Sig)
	case jobsim.Group:
		return t.node.Runtime().Group(ctx, func(g *ccl.Group) error {
			var errs []error
			for _, sig := range i.Sigs {
				errs = append(errs, call(g, t.comm(i.Comm), sig))
			}
			return errors.Join(errs...)
		})
	case jobsim.Wait:
		var errs []error
		for _, w := range t.works {
			errs = append(errs, w.Wait(ctx))
		}
		t.works = nil
		return errors.Join(errs...)
	case jobsim.Destroy:
		return t.comm(i.Comm).Destroy(ctx)
	case jobsim.Abort:
		return t.comm(i.Comm).Abort(errors.New(i.Cause))
	case jobsim.Die:
		os.Exit(i.Code)
	case jobsim.Leave:
		if i.Together {
			t.ranks.Done()
			t.ranks.Wait()
		}
		t.leave(0)
	default:
		return fmt.Errorf("%T can't be done", i)
	}
	return nil
}

func (t *thread) world(ctx context.Context) (*ccl.Comm, error) {
	rt, l := t.node.Runtime(), &t.trial.Layout
	if l.PerProcess == 1 {
		return rt.World(ctx)
	}
	text, err := os.ReadFile(filepath.Join(t.folder, "id"))
	for errors.Is(err, os.ErrNotExist) {
		time.Sleep(time.Millisecond) // the other process writes it as soon as it can
		text, err = os.ReadFile(filepath.Join(t.folder, "id"))
	}
	var id ccl.UniqueID
	if err := errors.Join(err, id.UnmarshalText(text)); err != nil {
		return nil, err
	}
	return rt.InitRank(ctx, id, l.Ranks(), t.number, ccl.WithName("world"))
}

// call makes an operation on float32; some faults use another type.
func call(ctx context.Context, c *ccl.Comm, sig tape.Signature) error {
	if sig.DataType == uint8(kernels.Float32) {
		return typed[float32](ctx, c, sig)
	}
	return typed[int32](ctx, c, sig)
}

// launch launches an all-reduce.
func launch(c *ccl.Comm, sig tape.Signature) *ccl.Work {
	if sig.DataType == uint8(kernels.Float32) {
		return allReduce[float32](c, sig)
	}
	return allReduce[int32](c, sig)
}

func allReduce[T kernels.Element](c *ccl.Comm, sig tape.Signature) *ccl.Work {
	data := make([]T, sig.Bytes/4)
	return ccl.IAllReduce(context.Background(), c, data, data, ccl.Sum+ccl.Reduction(sig.Reduction))
}

func typed[T kernels.Element](ctx context.Context, c *ccl.Comm, sig tape.Signature) error {
	data := make([]T, sig.Bytes/4)
	op := ccl.Sum + ccl.Reduction(sig.Reduction)
	switch sig.Call {
	case lifecycle.CallAllReduce:
		return ccl.AllReduce(ctx, c, data, data, op)
	case lifecycle.CallBroadcast:
		return ccl.Broadcast(ctx, c, data, data, int(sig.Peer))
	case lifecycle.CallAllGather:
		return ccl.AllGather(ctx, c, data, make([]T, len(data)*c.Size()))
	case lifecycle.CallAllToAll:
		data = data[:len(data)/c.Size()*c.Size()]
		return ccl.AllToAll(ctx, c, data, make([]T, len(data)))
	case lifecycle.CallBarrier:
		return ccl.Barrier(ctx, c)
	case lifecycle.CallSend:
		return ccl.Send(ctx, c, data, int(sig.Peer))
	case lifecycle.CallRecv:
		return ccl.Recv(ctx, c, data, int(sig.Peer))
	default:
		return fmt.Errorf("%v can't be called", sig.Call)
	}
}

package ccl_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// told is an engine that records its calls.
type told struct {
	engine.Engine
	list *[]string
}

func (e told) Begin(call lifecycle.Call, seq uint64, ops []engine.Op) algo.Algorithm {
	text := fmt.Sprintf("%v %d:", call, seq)
	for _, op := range ops {
		text += fmt.Sprintf(" %v %d", op.Call, op.Seq)
	}
	*e.list = append(*e.list, text)
	return e.Engine.Begin(call, seq, ops)
}

func (e told) Close() {
	*e.list = append(*e.list, "close")
	e.Engine.Close()
}

// An engine gets calls that have passed all checks, with the numbers on which the ranks agree: a refused call has no
// number.
func TestEngineIsTold(t *testing.T) {
	var list []string
	rt, err := ccl.New(ccl.Config{Log: slog.New(slog.DiscardHandler), Engine: engine.Kind{
		Name: "told", New: func(c *engine.Comm) engine.Engine { return told{host.New(c), &list} },
	}})
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c, ctx, one, two := comms[0], t.Context(), []int64{1}, []int64{1, 2}
	both := func(send, recv []int64) error {
		return rt.Group(ctx, func(g *ccl.Group) error {
			return errors.Join(ccl.Send(g, c, send, 0), ccl.Recv(g, c, recv, 0))
		})
	}
	if err := errors.Join(ccl.Barrier(ctx, c), both(one, make([]int64, 1))); err != nil {
		t.Error(err)
	}
	for want, err := range map[string]error{
		"recv has 2 elements":    ccl.AllReduce(ctx, c, one, two, ccl.Sum),
		"without the other":      ccl.Send(ctx, c, one, 0),
		"sends itself 1 element": both(one, two),
	} {
		var usage *ccl.UsageError
		if !errors.As(err, &usage) || usage.Code != lifecycle.CodeInvalidArgument ||
			!strings.Contains(usage.Detail, want) {
			t.Errorf("a call with a bad argument is answered by %v, want %q", err, want)
		}
	}
	child, err := c.Split(ctx, 0, 0)
	if err := errors.Join(err, child.Destroy(ctx), ccl.SendRecv(ctx, c, one, 0, make([]int64, 1), 0),
		ccl.AllReduce(ctx, c, one, one, ccl.Sum), c.Finalize(ctx), rt.Close(ctx)); err != nil {
		t.Error(err)
	}
	want := []string{
		"barrier 1: barrier 0", "group_end 1: send 1 recv 1", "split 2: all_gather 0", "split 2: all_gather 0", "close",
		"send_recv 2: send 2 recv 2", "all_reduce 3: all_reduce 0", "close",
	}
	if !slices.Equal(list, want) {
		t.Errorf("the engine was told\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
}

func TestRuntimeNeedsAnEngine(t *testing.T) {
	if _, err := ccl.New(ccl.Config{}); err == nil || !strings.Contains(err.Error(), "use host.Kind()") {
		t.Errorf("a runtime without an engine is answered by %v", err)
	}
}

// posting is an engine that notes when it begins to post.
type posting struct {
	engine.Engine
	at *int64
}

func (e posting) Begin(call lifecycle.Call, seq uint64, ops []engine.Op) algo.Algorithm {
	*e.at = tape.Now()
	return e.Engine.Begin(call, seq, ops)
}

// On the tapes, no rank ends an operation before another one has begun it: it has begun before it is posted.
func TestOperationBeginsBeforeItIsPosted(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	var posted int64
	rt, err := ccl.New(ccl.Config{Log: slog.New(slog.DiscardHandler), Tape: w, Engine: engine.Kind{
		Name: "posting", New: func(c *engine.Comm) engine.Engine { return posting{host.New(c), &posted} },
	}})
	if err != nil {
		t.Fatal(err)
	}
	comms, err := rt.InitAll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := ccl.Barrier(t.Context(), comms[0]); err != nil {
		t.Fatal(err)
	}
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	slots, err := r.AppendSlots(nil)
	if err != nil || len(slots) != 1 || slots[0].OpStart > posted {
		t.Errorf("the operation was posted at %d; the tape has %+v, %v", posted, slots, err)
	}
	if err := errors.Join(r.Close(), comms[0].Destroy(t.Context()), rt.Close(t.Context()), w.Close()); err != nil {
		t.Error(err)
	}
}

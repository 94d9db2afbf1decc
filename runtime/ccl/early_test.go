package ccl

import (
	"context"
	"errors"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// TestArgumentsOfACallThatComesTooEarly checks that on a communicator that is not ready yet, the guard refuses the call
// before it checks the arguments. An operation with unchecked arguments must not get through, as the communicator may
// be ready when it is made.
func TestArgumentsOfACallThatComesTooEarly(t *testing.T) {
	rt := quiet(t)
	defer func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	id, err := rt.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	c, err := rt.InitRank(t.Context(), id, 2, 0, NonBlocking())
	if !errors.Is(err, ErrInProgress) {
		t.Fatal(err)
	}
	bad := []engine.Op{newOp(lifecycle.CallAllReduce, []int64{1}, make([]int64, 2), Sum, -1, nil)}
	if err := c.admit(t.Context(), lifecycle.CallAllReduce, bad); err == nil ||
		lifecycle.CodeOf(err) == lifecycle.CodeInvalidArgument {
		t.Errorf("a call with bad arguments is answered by %v, want that it comes too early", err)
	}
	if err := SendRecv(t.Context(), c, []int64{1}, 1, make([]int64, 1),
		7); lifecycle.CodeOf(err) == lifecycle.CodeInvalidArgument || err == nil {
		t.Errorf("SendRecv: %v", err)
	}
	if err := c.Abort(nil); err != nil {
		t.Error(err)
	}
}

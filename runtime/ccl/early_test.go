package ccl

import (
	"context"
	"errors"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
)

// TestArgumentsOfACallThatComesTooEarly: on a communicator that is not ready yet, the guard refuses the call before its arguments are looked
// at. An operation whose arguments nobody has checked must not come out, for the communicator may be ready when it is made.
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
	if _, err := newOp(c, lifecycle.CallAllReduce, 1, []int64{1}, make([]int64, 2), Sum, -1, nil); err == nil {
		t.Error("an operation with bad arguments came out")
	}
	if err := SendRecv(t.Context(), c, []int64{1}, 1, make([]int64, 1), 7); lifecycle.CodeOf(err) == lifecycle.CodeInvalidArgument || err == nil {
		t.Errorf("SendRecv: %v", err)
	}
	if err := c.Abort(nil); err != nil {
		t.Error(err)
	}
}

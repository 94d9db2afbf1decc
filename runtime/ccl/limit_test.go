package ccl

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestMeetingLimit checks that a wait without a deadline ends, and says why; one with a deadline is not limited.
func TestMeetingLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel, explain := limited(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done() // in the bubble's virtual time
		err := explain(ctx.Err())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1m0s is the limit where") {
			t.Errorf("%v, want that the limit was a minute", err)
		}
		if err := explain(nil); err != nil {
			t.Errorf("of ranks that met: %v", err)
		}
		own, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ctx, _, explain = limited(own, time.Minute)
		if text := explain(context.DeadlineExceeded).Error(); ctx != own || text != context.DeadlineExceeded.Error() {
			t.Error("a context with a deadline was changed")
		}
	})
}

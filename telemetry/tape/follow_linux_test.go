package tape

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An idle follower sleeps: it looks seven times a second. The test counts how often its thread slept, which a busy
// machine doesn't change.
func TestIdleFollowerCosts(t *testing.T) {
	w := newTape(t, Config{})
	f := follow(t, w.Path(), 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	usage := func() (u unix.Rusage) {
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	before := usage()
	if _, err := f.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	after := usage()
	sleeps := after.Nvcsw - before.Nvcsw
	spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	t.Logf("slept %d times and spent %v", sleeps, spent)
	if sleeps > 40 || spent > 50*time.Millisecond {
		t.Errorf("an idle follower slept %d times in a second and spent %v", sleeps, spent)
	}
}

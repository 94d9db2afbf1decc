package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLately: a check that is called continually looks ten times a second, and returns its last result.
func TestLately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found, looks := errors.New("failed"), 0
		check := lately(func() error {
			looks++
			return found
		})
		for tick := time.NewTicker(time.Millisecond); looks < 10; <-tick.C {
			if err := check(t.Context()); !errors.Is(err, found) {
				t.Fatalf("it tells %v", err)
			}
		}
		began := time.Now()
		for range 5 {
			found = nil
			time.Sleep(checkAge)
			if err := check(t.Context()); err != nil {
				t.Fatalf("after %v it tells %v", checkAge, err)
			}
		}
		if looks != 15 || time.Since(began) != 5*checkAge {
			t.Errorf("%d looks", looks)
		}
	})
}

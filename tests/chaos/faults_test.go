package chaos

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/tests/e2e"
)

const (
	repetitions = 12 // three times for each rank
	cables      = 4  // on so many networks at a time: it takes long until a host is given up
)

// lab is shared by all jobs.
type lab struct {
	receiver *receiver
	alerts   *alertmanager
}

// TestFaults injects the faults that jobs meet. The faults run in parallel, each on hosts of its own.
func TestFaults(t *testing.T) {
	r := newReceiver(t)
	l := &lab{receiver: r, alerts: newAlertmanager(t, r)}
	t.Cleanup(func() {
		if len(r.bad) > 0 {
			t.Errorf("the receiver refused %q", r.bad)
		}
	})
	type fault struct {
		name string
		run  func(*testing.T, *lab)
	}
	var faults []fault // the slowest ones first
	for i := range cables {
		faults = append(faults, fault{fmt.Sprint("cable ", i+1), func(t *testing.T, l *lab) { cable(t, l, i+1) }})
	}
	for _, f := range append(faults, []fault{
		{"loss", loss},
		{"killed", killed},
		{"stopped", stopped},
		{"sleeps", sleeps},
		{"mismatch", mismatch},
		{"order", order},
		{"hostile", hostile},
	}...) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.run(t, l)
		})
	}
}

// killed kills a rank with SIGKILL. Its job ends.
func killed(t *testing.T, l *lab) {
	n := newNetwork(t)
	repeat(t, repetitions, func(i int) time.Duration {
		rank := i % ranks
		j := l.start(t, n, fmt.Sprintf("killed-%d", i), "")
		took := j.hurt(expected{reason: verdict.RankDead, ranks: []int{rank}}, j.signals(rank, syscall.SIGKILL))
		j.ended()
		j.gone()
		return took
	})
}

// stopped stops a rank, and lets it continue.
func stopped(t *testing.T, l *lab) {
	j := l.start(t, newNetwork(t), "stopped", "")
	repeat(t, repetitions, func(i int) time.Duration {
		rank := i % ranks
		took := j.hurt(expected{reason: verdict.RankStopped, ranks: []int{rank}}, j.signals(rank, syscall.SIGSTOP))
		j.heals(func() { e2e.Kill(t, j.pids[rank], syscall.SIGCONT) })
		return took
	})
	j.end()
}

// sleeps makes a rank delay its calls for a while.
func sleeps(t *testing.T, l *lab) {
	j := l.start(t, newNetwork(t), "sleeps", faultSleep)
	repeat(t, repetitions, func(i int) time.Duration {
		rank := i % ranks
		took := j.hurt(expected{reason: verdict.NotEntered, ranks: []int{rank}}, func() time.Time {
			return j.errs(rank)
		})
		j.heals(func() { e2e.Kill(t, j.pids[rank], syscall.SIGUSR2) })
		return took
	})
	j.end()
}

// mismatch makes a rank make a call of another size.
func mismatch(t *testing.T, l *lab) {
	n := newNetwork(t)
	repeat(t, repetitions, func(i int) time.Duration {
		rank := i % ranks
		j := l.start(t, n, fmt.Sprintf("mismatch-%d", i), faultMismatch)
		took := j.hurt(expected{reason: verdict.Mismatch, ranks: []int{rank}}, func() time.Time { return j.errs(rank) })
		j.ended()
		j.gone()
		return took
	})
}

// order makes a rank use two communicators in the opposite order, so that it and another rank wait for each other.
func order(t *testing.T, l *lab) {
	n := newNetwork(t)
	repeat(t, repetitions, func(i int) time.Duration {
		rank := i % ranks
		j := l.start(t, n, fmt.Sprintf("order-%d", i), faultOrder)
		took := j.hurt(expected{reason: verdict.Deadlock, ranks: []int{rank}, part: true},
			func() time.Time { return j.errs(rank) })
		j.end()
		j.gone()
		return took
	})
}

// cable pulls the cable of a host, and plugs it in again. The other side reports this host's ranks, too, as soon as its
// cable is back, as the receivers are on this side: neither side can know which of them is cut off.
func cable(t *testing.T, l *lab, number int) {
	n := newNetwork(t)
	// otherwise the kernel gives up: most of the time nothing gets through
	j := l.start(t, n, fmt.Sprintf("cable-%d", number), "", "CARILLON_KEEPALIVE=10m")
	there := expected{reason: verdict.RankUnreachable, ranks: []int{0, 1}}
	j.also = there.fits
	repeat(t, repetitions/cables, func(int) time.Duration {
		took := j.hurt(expected{reason: verdict.RankUnreachable, ranks: []int{2, 3}}, func() time.Time {
			at := time.Now()
			n.cut(n.hosts[1])
			return at
		})
		j.heals(func() { n.mend(n.hosts[1]) })
		return took
	})
	j.end()
}

// loss makes both hosts lose 30 % of the packets for a while. The job becomes slow, or waits, and goes on; nothing must
// be reported. TCP's pauses grow with the time that packets needed before, and the time after which the kernel gives a
// connection up may count from the first loss: the threshold of a stall is longer than either.
func loss(t *testing.T, l *lab) {
	n := newNetwork(t)
	j := l.start(t, n, "loss", "", "CARILLON_KEEPALIVE=10m",
		"CARILLON_STALL_THRESHOLD=11m", "CARILLON_SLOW_THRESHOLD=11m")
	for range repetitions {
		began := time.Now()
		n.lose(30)
		const enough = 50
		n.awaitLost(enough)
		n.loseNothing()
		lasted := time.Since(began)
		j.moves(5)
		t.Logf("for %v each host lost at least %d packets", lasted.Round(time.Millisecond), enough)
		j.quiet("packets get lost")
	}
	j.end()
}

// repeat repeats a fault, and logs how long its report took.
func repeat(t *testing.T, times int, repetition func(i int) time.Duration) {
	t.Helper()
	took := make([]time.Duration, times)
	for i := range took {
		took[i] = repetition(i)
	}
	slices.Sort(took)
	t.Logf("from the fault to the webhook, of %d: median %v, longest %v", times, took[times/2].Round(time.Millisecond),
		took[times-1].Round(time.Millisecond))
}

// signals returns a fault that sends a signal.
func (j *job) signals(rank int, sig syscall.Signal) func() time.Time {
	return func() time.Time {
		at := time.Now()
		e2e.Kill(j.t, j.pids[rank], sig)
		return at
	}
}

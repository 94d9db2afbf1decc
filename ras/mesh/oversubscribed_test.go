package mesh

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

// busyFor is how long the cores are kept busy, and idleFor how long the members are watched doing nothing.
var (
	busyFor = flag.Duration("busy", 10*time.Second, "how long TestOversubscribed keeps every core busy")
	idleFor = flag.Duration("idle", 3*time.Second, "how long TestIdleCost watches members do nothing")
)

// Every core has four times as many threads as it can run, for each of four processes, and nobody is taken for dead.
func TestOversubscribed(t *testing.T) {
	all := startChildren(t, 8)
	for _, c := range all[:4] {
		if _, err := fmt.Fprintln(c.in, "spin"); err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(*busyFor)
	suspected := 0
	for _, c := range all {
		if bad := c.bad(); len(bad) > 0 {
			t.Errorf("%s was told %+v", c.name, bad)
		}
		c.mu.Lock()
		for _, l := range c.lines {
			if l.Kind == Suspected.String() {
				suspected++
			}
		}
		c.mu.Unlock()
	}
	// A real death is still told.
	at := Kernel().Now()
	if err := all[7].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var worst time.Duration
	for _, c := range all[:7] {
		worst = max(worst, time.Duration(c.told(t, 20*time.Second, Died, all[7].name).At-at))
	}
	t.Logf("%v with every core oversubscribed: no false death, %d suspicions; a real death told within %v",
		*busyFor, suspected, worst)
}

// What a member costs that does nothing, of eight on one machine.
func TestIdleCost(t *testing.T) {
	all := startChildren(t, 8)
	usage := func(c *child, n int) line {
		if _, err := fmt.Fprintln(c.in, "usage"); err != nil {
			t.Fatal(err)
		}
		return c.wait(t, 10*time.Second, "its usage", func(l line) bool {
			if l.Kind == "usage" {
				n--
			}
			return l.Kind == "usage" && n == 0
		})
	}
	before := make([]line, len(all))
	for i, c := range all {
		before[i] = usage(c, 1)
	}
	<-time.After(*idleFor)
	var cpu time.Duration
	var heap uint64
	for i, c := range all {
		after := usage(c, 2)
		cpu += (after.CPU - before[i].CPU)
		heap = max(heap, after.Heap)
	}
	share := 100 * cpu.Seconds() / idleFor.Seconds() / float64(len(all))
	t.Logf("idle for %v: %.2f %% of a core a process, heap %d KiB", *idleFor, share, heap>>10)
	if heap > 16<<20 {
		t.Errorf("the heap has %d bytes, want at most 16 MiB", heap)
	}
}

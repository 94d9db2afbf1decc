package proxy

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

func TestGather(t *testing.T) {
	part := func(round uint64) *op { return &op{kind: kindData, round: round, data: make([]byte, 8)} }
	ahead, large := part(8), part(7)
	large.data = make([]byte, packBytes+1)
	for name, c := range map[string]struct {
		ops   []*op // operations of local ranks 0, 1 …
		round uint64
		after time.Duration
		want  bool
	}{
		"one of three":            {[]*op{part(7)}, 7, 0, true},
		"two of three":            {[]*op{part(7), part(7)}, 7, 0, true},
		"all":                     {[]*op{part(7), part(7), part(7)}, 7, 0, false},
		"one is ahead":            {[]*op{part(7), part(7), ahead}, 7, 0, false},
		"all, and one is ahead":   {[]*op{part(7), part(7), part(7), ahead}, 7, 0, false},
		"one is behind":           {[]*op{ahead, part(7)}, 8, 0, false},
		"one is ahead, alone":     {[]*op{ahead}, 7, 0, true},
		"one is in no round":      {[]*op{part(7), part(0)}, 7, 0, false},
		"of a round that is over": {[]*op{part(7)}, 8, 0, false},
		"of no round":             {[]*op{part(0)}, 7, 0, false},
		"in no round":             {[]*op{part(7)}, 0, 0, false},
		"a large one":             {[]*op{large}, 7, 0, false},
		"for long enough":         {[]*op{part(7)}, 7, maxCoalesce, false},
	} {
		g := coalescer{all: 0b111}
		for i, o := range c.ops {
			g.add(o, i%3, i == 0)
		}
		got := g.waits(c.round, time.Second)
		if c.after > 0 {
			got = g.waits(c.round, time.Second+c.after)
		}
		if got != c.want {
			t.Errorf("%s: waits %v, want %v", name, got, c.want)
		}
	}
}

// A part that is submitted after a later round was sent goes out at once.
func TestLatePart(t *testing.T) {
	g := coalescer{all: 0b11}
	g.add(&op{kind: kindData, round: 8}, 0, true)
	g.add(&op{kind: kindData, round: 7}, 1, true)
	if g.waits(7, time.Second) {
		t.Error("it waits for the later round to be complete")
	}
}

// Data that one rank has sent in a round arrives even if the other ranks, including its carrier, don't enter the round.
func TestGatheringEnds(t *testing.T) {
	for name, held := range map[string]bool{"the carrier is in no operation": false, "the carrier holds it": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 0, 0, 0, 1, 1, 1)
			c.connect()
			for i, w := range c.waiters {
				w.Attend(new(atomic.Uint32), c.endpoints[i].Attend)
			}
			enter := func(rank int) {
				c.waiters[rank].Enter()
				c.waiters[rank].Together(1)
			}
			enter(1)
			want := []byte("its part")
			if n, err := c.endpoints[1].Conn(3).TrySend(want); n != len(want) || err != nil {
				t.Fatal(n, err)
			}
			c.endpoints[1].Attend()
			if held {
				enter(0)
				c.endpoints[0].Attend()
			}
			if got := c.take(3, 1, len(want)); !bytes.Equal(got, want) {
				t.Errorf("%q has come, want %q", got, want)
			}
		})
	}
}

// Data that all ranks have sent in a round goes out although one of them is in the next round by then.
func TestRoundBeforeIsSent(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	submit := func(rank int, round uint64) {
		w := c.waiters[rank]
		w.Attend(new(atomic.Uint32), c.endpoints[rank].Attend)
		w.Enter()
		w.Together(round)
		if n, err := c.endpoints[rank].Conn(2).TrySend([]byte("its part")); n != 8 || err != nil {
			t.Fatal(n, err)
		}
	}
	submit(0, 1)
	submit(1, 1)
	submit(1, 2)
	r := c.endpoints[0].rails[2]
	if r.full.Load() {
		t.Fatal("it was sent before its carrier came to it")
	}
	if err := c.waiters[0].Idle(t.Context()); err != nil || !r.full.Load() { // full, as there is no connection
		t.Errorf("it was not sent (%v)", err)
	}
}

// A rank in a round sends its own part, and that of another rank, at the latest when it leaves.
func TestLeavingSends(t *testing.T) {
	c := newCluster(t, 0, 0, 1, 1)
	c.waiters[0].Attend(new(atomic.Uint32), c.endpoints[0].Attend)
	c.waiters[0].Enter()
	c.waiters[0].Together(3)
	if n, err := c.endpoints[0].Conn(2).TrySend([]byte("its part")); n != 8 || err != nil {
		t.Fatal(n, err)
	}
	r := c.endpoints[0].rails[2]
	if err := c.waiters[0].Idle(t.Context()); err != nil || r.full.Load() {
		t.Fatalf("it was to be sent at once (%v)", err)
	}
	c.waiters[0].Leave()
	if !r.full.Load() { // it has tried to send: full, as there is no connection
		t.Error("it was not sent")
	}
	if c.waiters[0].Round() != 0 || c.endpoints[0].Conn(2).Waits() != tape.PhaseNetwork {
		t.Error("the rank is not seen to have left, or what it sent not to be on its way")
	}
}

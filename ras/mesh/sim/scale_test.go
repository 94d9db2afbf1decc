package sim_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
)

// members is how many TestScale runs: 512 are the 4,096 ranks of a job with one member for each eight.
var members = flag.Int("members", 64, "how many members TestScale has, a multiple of eight")

// A minute without a false word, then a kill, a stop, and a question to all.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 8
		machines := *members / each
		j := start(t, 20, lan, machines, each, mesh.LAN())
		time.Sleep(10 * time.Second) // the last of the joining
		from := time.Now()
		packets, bytes := j.network.Traffic()
		const quiet = time.Minute
		time.Sleep(quiet)
		p, b := j.network.Traffic()
		t.Logf("idle: %.1f packets and %.0f bytes a second sent by each of %d members",
			float64(p-packets)/float64(*members)/quiet.Seconds(), float64(b-bytes)/float64(*members)/quiet.Seconds(), *members)
		for i, r := range j.ranks {
			if events := r.since(from); len(events) > 0 {
				t.Fatalf("member %d was told %v while nothing happened", i, events)
			}
		}
		from = time.Now()
		victim := j.ranks[10]
		victim.process.Kill(mesh.Exit{})
		t.Logf("killed: all told after %v", j.told(2*time.Second, from, mesh.Died, victim.process.Member().Name, victim))
		from = time.Now()
		stopped := j.ranks[20]
		stopped.process.Stop()
		t.Logf("stopped: all told after %v",
			j.told(5*time.Second, from, mesh.Halted, stopped.process.Member().Name, victim, stopped))
		_, b0 := j.network.Traffic()
		own, forOthers, missing, took := ask(t, j.ranks[0], 5*time.Second)
		_, b1 := j.network.Traffic()
		t.Logf("asked: %d answered, %d others answered for, %d missing, within %v and %d KB",
			len(own), len(forOthers), len(missing), took, (b1-b0)/1000)
		if len(own) != machines*each-2 || len(forOthers) != 2 {
			t.Errorf("%d answered, for others %v, missing %v", len(own), forOthers, missing)
		}
		stopped.process.Continue()
	})
}

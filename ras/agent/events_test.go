package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestVerdictOfThousandsIsTold: a bus takes the event of a verdict for which 4,096 ranks wait, of hosts with long names, and
// whatever its texts hold; it has the verdict's id, and says how many there are.
func TestVerdictOfThousandsIsTold(t *testing.T) {
	for name, char := range map[string]string{"plain": "h", "control characters": "\x01"} {
		v := verdict.Verdict{Reason: verdict.Mismatch, Text: strings.Repeat(char, 5000)}
		for r := range 4096 {
			host := strings.Repeat("h", 64)
			rank := verdict.Rank{Job: r, Comm: r, Member: fmt.Sprintf("%s-%d", host, 1<<20+r), Host: host, PID: 1<<20 + r}
			v.Victims = append(v.Victims, verdict.Wait{Rank: rank, Name: strings.Repeat(char, 255), Call: "all_reduce", Seq: 1 << 40})
			v.Evidence = append(v.Evidence, strings.Repeat(char, 5000))
			if r%2 == 0 {
				v.Culprits = append(v.Culprits, rank)
			}
		}
		b, err := bus.New(bus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		events := b.Attach(bus.SubscriptionConfig{})
		defer events.Close()
		if err := b.Publish(verdictEvent(&verdict.Change{Kind: verdict.Opened, Verdict: v}, mesh.Event{}.Since)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ev, err := events.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got verdictData
		if err := json.Unmarshal(ev.JSON(), &got); err != nil {
			t.Fatal(err)
		}
		if got.ID != v.ID() || got.Verdict.ID() != v.ID() || got.CulpritsTotal != 2048 || got.VictimsTotal != 4096 {
			t.Errorf("%s: told is verdict %s (%s), %d culprits, %d wait; want %s, 2048, 4096",
				name, got.ID, got.Verdict.ID(), got.CulpritsTotal, got.VictimsTotal, v.ID())
		}
		if len(got.Culprits) == 0 || len(got.Victims) == 0 || got.Victims[0].Rank != v.Victims[0].Rank {
			t.Errorf("%s: %d culprits and %d who wait are listed, want the first of them", name, len(got.Culprits), len(got.Victims))
		}
	}
	if v := (verdict.Verdict{Reason: verdict.RankDead, Culprits: make([]verdict.Rank, maxEventRanks)}); strings.Contains(string(dataOf(&v)), "whole") {
		t.Error("a verdict that is told in full is said to be a part")
	}
}

package mesh

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkIdle is what an idle member costs, of eight on one machine. An operation is a second of that: -benchtime=60x
// takes a minute.
func BenchmarkIdle(b *testing.B) {
	all := startChildren(b, 8)
	before := usage(b, all, 1)
	seconds := countSeconds(b)
	after := usage(b, all, 2)
	var cpu time.Duration
	var heap uint64
	for i := range all {
		cpu += after[i].CPU - before[i].CPU
		heap = max(heap, after[i].Heap)
	}
	b.ReportMetric(100*cpu.Seconds()/seconds/float64(len(all)), "%core/process")
	b.ReportMetric(float64(heap>>10), "KiB-heap")
	if heap > 16<<20 {
		b.Errorf("the heap has %d bytes, want at most 16 MiB", heap)
	}
}

// BenchmarkOversubscribed gives every core four times as many busy threads as it can run: four of eight members keep
// all cores busy, each with four times as many goroutines as there are cores. No member may be taken for dead. Then one
// is killed, and the others are told. An operation is a second of that: -benchtime=60x takes a minute.
func BenchmarkOversubscribed(b *testing.B) {
	all := startChildren(b, 8)
	for _, c := range all[:4] {
		if _, err := fmt.Fprintln(c.in, "spin"); err != nil {
			b.Fatal(err)
		}
	}
	countSeconds(b)
	suspected := 0
	for _, c := range all {
		if bad := c.bad(); len(bad) > 0 {
			b.Errorf("%s was told %+v", c.name, bad)
		}
		suspected += c.count("suspect")
	}
	at := kernel{}.Now()
	if err := all[7].cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	var worst time.Duration
	for _, c := range all[:7] {
		worst = max(worst, time.Duration(c.told(b, 20*time.Second, "dead", all[7].name).At-at))
	}
	b.ReportMetric(float64(suspected), "suspicions")
	b.ReportMetric(float64(worst.Milliseconds()), "ms-to-tell-a-death")
}

// countSeconds lets one second pass for each operation, and returns how many passed.
func countSeconds(b *testing.B) float64 {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	began := time.Now()
	for b.Loop() {
		<-ticker.C
	}
	return time.Since(began).Seconds()
}

// usage is what each child reports that it uses, when it is asked for the nth time.
func usage(b *testing.B, all []*child, n int) []line {
	lines := make([]line, len(all))
	for i, c := range all {
		if _, err := fmt.Fprintln(c.in, "usage"); err != nil {
			b.Fatal(err)
		}
		seen := 0
		lines[i] = c.wait(b, 10*time.Second, "its usage", func(l line) bool {
			if l.Kind == "usage" {
				seen++
			}
			return l.Kind == "usage" && seen == n
		})
	}
	return lines
}

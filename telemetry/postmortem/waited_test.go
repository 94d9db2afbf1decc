package postmortem_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/telemetry/postmortem"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// crew is a script of so many ranks of world, which live for a minute. Each step of its job is an all-reduce of 1,000
// bytes, of which rank r makes counts[r] that take it means[r] each.
func crew(means, counts []string) string {
	var s strings.Builder
	s.WriteString("host here\n")
	for r := range means {
		fmt.Fprintf(&s, "process p%d here closed\n1ms p%d comm world %d/%d\ntally p%d world all_reduce 1000 %s %s\n", r, r, r, len(means), r, counts[r], means[r])
	}
	s.WriteString("60s together world barrier 1 0 1ms\n")
	return s.String()
}

// alike is a crew whose ranks made as many.
func alike(count string, means ...string) string {
	return crew(means, slices.Repeat([]string{count}, len(means)))
}

// kinds is a script of so many kinds of operations that a process has counted, the first of which took least.
func kinds(proc string, n int) string {
	var s strings.Builder
	for i := range n {
		call := []string{"send", "recv", "broadcast", "reduce"}[i/16]
		fmt.Fprintf(&s, "tally %s world %s %d 1 %dus\n", proc, call, 1<<(2*(i%16)), 10*(i+1))
	}
	return s.String()
}

func readScript(t *testing.T, script string, opts postmortem.Options) *postmortem.Report {
	t.Helper()
	s := newStage(t)
	s.play(script)
	s.write()
	r, err := postmortem.Read([]string{s.dir}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWaited has jobs in which some ranks were waited for, and such as are like them but for one thing: there nothing
// is said.
func TestWaited(t *testing.T) {
	// Ranks of world that are in one of two communicators of one name, by pairs.
	pairs := func(a, b, c, d string) string {
		return `host here
process p0 here closed
process p1 here closed
process p2 here closed
process p3 here closed
1ms p0 comm world 0/4
1ms p1 comm world 1/4
1ms p2 comm world 2/4
1ms p3 comm world 3/4
1ms p0 comm tp 0/2 world
1ms p1 comm tp 1/2 world
1ms p2 comm pp 0/2 world
1ms p3 comm pp 1/2 world
tally p0 tp reduce_scatter 1000 1000 ` + a + `
tally p1 tp reduce_scatter 1000 1000 ` + b + `
tally p2 pp reduce_scatter 1000 1000 ` + c + `
tally p3 pp reduce_scatter 1000 1000 ` + d + `
60s together world barrier 1 0 1ms
`
	}
	slow := alike("1000", "20ms", "1ms", "21ms")
	for _, c := range []struct {
		name, script string
		want         string // "" where it isn't clear
	}{
		{"one of three", slow, "Rank 1 was waited for: it spent 1s in 1,000 all_reduce of world (up to 1.0 KiB), the others 20s to 21s."},
		{"one of two", alike("1000", "1ms", "9ms"), "Rank 0 was waited for: it spent 1s in 1,000 all_reduce of world (up to 1.0 KiB), the other 9s."},
		{
			"two of five", alike("1000", "9ms", "1ms", "9ms", "2ms", "9ms"),
			"Ranks 1 and 3 were waited for: they spent 1s to 2s in 1,000 all_reduce of world (up to 1.0 KiB), the others 9s.",
		},
		{
			"most of what was lost", alike("1000", "9ms", "1ms", "9ms") + "tally p0 world barrier 0 200 200ms\ntally p1 world barrier 0 200 1ms\n" +
				"tally p2 world barrier 0 200 200ms\n",
			"Rank 1 was waited for: it spent 200ms in 200 barrier of world, the others 40s.",
		},
		{
			"not the rank in the communicator but in the job", pairs("9ms", "9ms", "9ms", "1ms"),
			"Rank 3 was waited for: it spent 1s in 1,000 reduce_scatter of pp (up to 1.0 KiB), the other 9s.",
		},
		{
			"now and then", alike("10000", "1us", "1us", "1us") + "tally p0 world all_reduce 1000 40 500ms\ntally p1 world all_reduce 1000 40 1ms\n" +
				"tally p2 world all_reduce 1000 40 500ms\n",
			"Rank 1 was waited for: it spent 50ms in 10,040 all_reduce of world (up to 1.0 KiB), the others 20s.",
		},
		{
			"not everywhere equally far", crew([]string{"20ms", "1ms", "21ms"}, []string{"1000", "981", "999"}),
			"Rank 1 was waited for: it spent 981ms in 1,000 all_reduce of world (up to 1.0 KiB), the others 20s to 21s.",
		},

		{"all alike", alike("1000", "20ms", "19ms", "21ms"), ""},
		{"not by half", alike("1000", "20ms", "11ms", "21ms"), ""},
		{"no border", alike("1000", "20ms", "10ms", "13ms", "20ms", "20ms"), ""},
		{"most are early", alike("1000", "1ms", "1ms", "20ms"), ""},
		{"few operations", alike("199", "20ms", "1ms", "21ms"), ""},
		{"other numbers of operations", crew([]string{"20ms", "1ms", "21ms"}, []string{"1000", "979", "1000"}), ""},
		{"little of a minute", alike("1000", "3ms", "100us", "3ms"), ""},
		{"at the beginning", alike("10000", "1us", "1us", "1us") + "tally p0 world all_reduce 1000 1 20s\ntally p2 world all_reduce 1000 1 20s\n", ""},
		{"four long stalls", alike("10000", "1us", "1us", "1us") + "tally p0 world all_reduce 1000 4 5s\ntally p2 world all_reduce 1000 4 5s\n", ""},
		{"it was late because it waited elsewhere", strings.Replace(slow, "process p1", "process q here closed\n1ms q comm pp 0/2\nprocess p1", 1) +
			"1ms p1 comm pp 1/2\ntally p1 pp recv 1000 1000 19ms\n", ""},
		{"a call that not all wait in", strings.ReplaceAll(slow, "all_reduce", "broadcast"), ""},
		{"one that a rank has no part in", strings.Replace(alike("1000", "20ms", "1ms", "21ms", "20ms"), "p3 world all_reduce", "p3 world all_gather", 1), ""},
		{"a rank without a tape", strings.ReplaceAll(slow, "/3", "/4"), ""},
		{"a tape that was cut short", strings.Replace(slow, "p0 here closed", "p0 here closed cut 100000", 1), ""},
		{"a tally that is corrupt", strings.Replace(slow, "p0 here closed", "p0 here closed damage tally", 1) + "tally p0 world send 1 1 1us\n", ""},
		{"counts that can't be", strings.Replace(slow, "p0 here closed", "p0 here closed damage count", 1) + "tally p0 world send 1 1 1us\n", ""},
		{"tallies that may not be all", slow + kinds("p0", tapetest.MaxTallies-1), ""},
		{"communicators that may not be all", slow + strings.Repeat("2ms p0 act world split 1 start\n", 1100), ""},
		{"a rank that two claim", strings.ReplaceAll(slow, "/3", "/4") + "process q here closed\n1ms q comm world 1/4\ntally q world all_reduce 1000 1000 20ms\n", ""},
		{"processes that are several ranks", strings.ReplaceAll(alike("1000", "1ms", "9ms"), "/2", "/4") +
			"1ms p0 comm world 2/4\n1ms p1 comm world 3/4\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readScript(t, c.script, postmortem.Options{})
			got := ""
			if r.Waited != nil {
				got = r.Waited.Text
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What is clear is so to programs, too, whichever events are asked for.
func TestWaitedForPrograms(t *testing.T) {
	r := readScript(t, alike("1000", "9ms", "1ms", "9ms", "2ms", "10ms"), postmortem.Options{Comm: "other", Ranks: []int{0}})
	want := &postmortem.Waited{
		Ranks: []int{1, 3}, Comm: "world", Call: "all_reduce", UpTo: 1024, Operations: 1000, Time: 2 * time.Second, Others: 9 * time.Second,
		Text: "Ranks 1 and 3 were waited for: they spent 1s to 2s in 1,000 all_reduce of world (up to 1.0 KiB), the others 9s to 10s.",
	}
	if diff := cmp.Diff(want, r.Waited); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

package postmortem_test

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// TestDone checks all that the report tells programs of a kind of operations.
func TestDone(t *testing.T) {
	r := readScript(t, `host here
process p0 here closed
process p1 here closed
1ms p0 comm world 0/2
1ms p1 comm world 1/2
tally p0 world all_reduce 1000 98 10us
tally p0 world all_reduce 1000 2 10ms
tally p1 world all_reduce 700 50 100us
tally p1 world all_reduce 1000 1 20s
tally p1 world barrier 0 1 3us
`, postmortem.Options{})
	want := []postmortem.Done{
		{
			Comm: "world", Engine: "host", Call: "all_reduce", UpTo: 1024, Operations: 151, Bytes: 100_000 + 36_000,
			Time: 980*time.Microsecond + 20*time.Millisecond + 5*time.Millisecond + 20*time.Second, Mean: 132_622_384,
			Median: 16 * time.Microsecond, P99: 16384 * time.Microsecond,
			Durations: []postmortem.DurationCount{
				{UpTo: 16 * time.Microsecond, Operations: 98},
				{UpTo: 256 * time.Microsecond, Operations: 50},
				{UpTo: 16384 * time.Microsecond, Operations: 2},
				{UpTo: -1, Operations: 1},
			},
			Bandwidth: (98*1e8 + 2*1e5 + 50*7e6 + 50) / 151,
			Bandwidths: []postmortem.BandwidthCount{
				{UpTo: 1e6, Operations: 3},
				{UpTo: 16e6, Operations: 50},
				{UpTo: 256e6, Operations: 98},
			},
			Ranks: []postmortem.DoneBy{
				{Rank: 0, Process: 0, Operations: 100, Bytes: 100_000, Time: 20_980 * time.Microsecond},
				{Rank: 1, Process: 1, Operations: 51, Bytes: 36_000, Time: 20*time.Second + 5*time.Millisecond},
			},
		},
		{
			Comm: "world", Engine: "host", Call: "barrier", Operations: 1, Time: 3000, Mean: 3000, Median: 4000,
			P99: 4000, Durations: []postmortem.DurationCount{{UpTo: 4000, Operations: 1}},
			Ranks: []postmortem.DoneBy{{Rank: 1, Process: 1, Operations: 1, Time: 3000}},
		},
	}
	nearly := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(a, b) })
	if diff := cmp.Diff(want, r.Done, nearly); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"done":[{"comm":"world","engine":"host","call":"all_reduce","up_to_bytes":1024,"operations":151,` +
			`"bytes":136000,"time_ns":20025980000,"mean_ns":132622384,` +
			`"median_up_to_ns":16000,"p99_up_to_ns":16384000,"durations":[{"up_to_ns":16000,"operations":98},`,
		`{"up_to_ns":-1,"operations":1}],"bus_bandwidth":`, `"bus_bandwidths":[{"up_to":1000000,"operations":3},`,
		`"ranks":[{"rank":0,"process":0,"operations":100,"bytes":100000,"time_ns":20980000},`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

// TestManyKinds: of many kinds, the report shows those that took most time; a tape that has no room for more says so.
func TestManyKinds(t *testing.T) {
	r := readScript(t, "host here\nprocess p0 here closed\n1ms p0 comm world 0/2\n"+kinds("p0", tapetest.MaxTallies),
		postmortem.Options{})
	if len(r.Done) != tapetest.MaxTallies {
		t.Fatalf("%d kinds", len(r.Done))
	}
	var out strings.Builder
	if err := r.Write(&out, postmortem.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(out.String(), "COMPLETED OPERATIONS\n\n")
	table, notes, _ := strings.Cut(text, "NOTES")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != 22 || !strings.Contains(lines[1], "recv  up to 1.0 GiB  1           320µs") ||
		lines[21] != "  … and 12 more (all are in --json)." {
		t.Errorf("%d lines:\n%s", len(lines), table)
	}
	full := "p0.tape has room to count 32 kinds of operations, all of it used: others, if any, are not counted"
	if !strings.Contains(notes, full) {
		t.Errorf("no %q in the notes:\n%s", full, notes)
	}
}

// TestDoneByOneProcess: a process of several ranks has a tally for each. If the options ask for one of the ranks, the
// report says that they can't be told apart.
func TestDoneByOneProcess(t *testing.T) {
	dir := t.TempDir()
	f := &tapetest.Forge{PID: 1 << 30, Host: "h", Job: "j", CreatedMono: 1, CreatedWall: 1}
	for rank := range 2 {
		info := tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: rank, Size: 2}
		f.Slots = append(f.Slots, tape.Slot{
			CommInfo: info, Index: rank, Generation: uint32(rank + 1), Root: uint32(rank + 1),
			Wait: -1,
		})
		f.Tallies = append(f.Tallies, tape.Tally{
			Name: "world", Call: lifecycle.CallBarrier, Time: time.Duration(rank+1) * time.Second,
			Durations: [tape.DurationBuckets]uint64{10},
		})
	}
	if err := f.WriteFile(filepath.Join(dir, "a.tape")); err != nil {
		t.Fatal(err)
	}
	r, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []postmortem.DoneBy{
		{Rank: -1, Operations: 10, Time: time.Second},
		{Rank: -1, Operations: 10, Time: 2 * time.Second},
	}
	if diff := cmp.Diff(want, r.Done[0].Ranks); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var out strings.Builder
	if err := r.Write(&out, postmortem.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	const barrier = "barrier  10          150ms  ≤ 1µs   ≤ 1µs  1s                2s\n"
	if !strings.Contains(out.String(), barrier) {
		t.Errorf("no %q in\n%s", barrier, out.String())
	}
	if r, err = postmortem.Read([]string{dir}, postmortem.Options{Ranks: []int{0}}); err != nil {
		t.Fatal(err)
	}
	if len(r.Done) != 0 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "doesn't say which") {
		t.Errorf("%+v, %+v", r.Done, r.Problems)
	}
}

// TestCountsOutOfBounds: numbers that a sound tape never has don't make the report's other numbers wrong.
func TestCountsOutOfBounds(t *testing.T) {
	dir := t.TempDir()
	most := func(n uint64) (b [tape.DurationBuckets]uint64) {
		for i := range b {
			b[i] = n
		}
		return b
	}
	f := &tapetest.Forge{PID: 1 << 30, Host: "h", Job: "j", CreatedMono: 1, CreatedWall: 1}
	good := tape.Tally{
		Name: "world", Call: lifecycle.CallAllReduce, SizeClass: 255, Bytes: math.MaxUint64, Time: math.MaxInt64,
		Durations: most(1 << 47), Bandwidth: 1e290, Bandwidths: [tape.BandwidthBuckets]uint64{1},
	}
	for _, change := range []func(*tape.Tally){
		func(*tape.Tally) {},
		func(*tape.Tally) {}, // with the first it overflows
		func(t *tape.Tally) { t.Durations[3]++ },
		func(t *tape.Tally) { t.Time = -1 },
		func(t *tape.Tally) { t.OrdinaryTime = math.MinInt64; t.Time = 0 },
		func(t *tape.Tally) { t.Bandwidth = -1 },
		func(t *tape.Tally) { t.Bandwidth = math.Inf(1) },
		func(t *tape.Tally) { t.Bandwidth = math.NaN() },
		func(t *tape.Tally) { t.Bandwidths[0] = math.MaxUint64 },
		func(t *tape.Tally) { t.Ordinary = math.MaxUint64 },
	} {
		tally := good
		change(&tally)
		f.Tallies = append(f.Tallies, tally)
	}
	if err := f.WriteFile(filepath.Join(dir, "a.tape")); err != nil {
		t.Fatal(err)
	}
	r, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "has counts that can't be right: 8 kinds of operations are left out"
	if len(r.Problems) != 1 || r.Problems[0].Text != want {
		t.Errorf("%+v", r.Problems)
	}
	if len(r.Done) != 1 {
		t.Fatalf("%+v", r.Done)
	}
	d := &r.Done[0]
	if d.Operations != 2*tape.DurationBuckets<<47 || d.Bytes != math.MaxUint64 || d.Time != math.MaxInt64 ||
		d.UpTo != math.MaxUint64 || d.P99 != -1 {
		t.Errorf("%+v", d)
	}
	var out strings.Builder
	if err := r.Write(&out, postmortem.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "more than 4.0 EiB"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

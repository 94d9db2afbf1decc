package ncclras

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lines is a status as lines to compare.
func lines(s *Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "nccl %s\n", s.NCCL)
	for _, c := range s.Comms {
		fmt.Fprintf(&b, "%#x of %d\n", c.Hash, c.Size)
		for _, r := range c.Ranks {
			fmt.Fprintf(&b, "  %d %v gpu %d %v", r.Rank, r.Process, r.GPU, r.Condition)
			if r.Init != 0 || r.Async != 0 {
				fmt.Fprintf(&b, " results %d %d", r.Init, r.Async)
			}
			fmt.Fprintf(&b, "%s\n", counts(r.Launched))
		}
	}
	if s.Cut != nil {
		fmt.Fprintf(&b, "cut: %v\n", s.Cut)
	}
	for _, d := range s.Damage {
		fmt.Fprintf(&b, "damage: %s\n", d)
	}
	return b.String()
}

func counts(by map[string]uint64) string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		if by[kind] > 0 {
			fmt.Fprintf(&b, " %s %d", kind, by[kind])
		}
	}
	return b.String()
}

func compare(t *testing.T, s *Status, err error, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), lines(s)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestJSONOfCaptures(t *testing.T) {
	read := func(name string) *Status {
		s, err := ParseJSON(strings.NewReader(capture(t, name)))
		if err != nil || s.Cut != nil || s.Damage != nil {
			t.Fatalf("%s: %v, %v, %v", name, err, s.Cut, s.Damage)
		}
		return s
	}
	if s := read("healthy.json"); len(s.Comms) != 5 {
		t.Errorf("%d communicators in a healthy job, want 5", len(s.Comms))
	}
	compare(t, read("init-one-rank-late.json"), nil, "nccl 2.28.9\n")

	late := read("rank-skipped-allreduce.json")
	late.Comms = slices.DeleteFunc(late.Comms, func(c Comm) bool { return c.Size < 4 })
	compare(t, late, nil, `
nccl 2.28.9
0xa7b38ca8857de0c9 of 4
  0 192.0.2.2-1594 gpu 0 running AllGather 3 AllReduce 7 Broadcast 3 ReduceScatter 3
  1 192.0.2.2-1595 gpu 1 running AllGather 3 AllReduce 7 Broadcast 3 ReduceScatter 3
  2 192.0.2.2-1596 gpu 2 running AllGather 3 AllReduce 7 Broadcast 3 ReduceScatter 3
  3 192.0.2.2-1597 gpu 3 running AllGather 3 AllReduce 6 Broadcast 3 ReduceScatter 3
`)

	stopped := read("stopped-1s.json") // which lacks commas
	if len(stopped.Comms) != 5 {
		t.Errorf("%d communicators, want 5", len(stopped.Comms))
	}
	stopped.Comms = slices.DeleteFunc(stopped.Comms, func(c Comm) bool { return c.Size < 4 })
	compare(t, stopped, nil, `
nccl 2.28.9
0xf647fe066c4474f1 of 4
  0 192.0.2.2-1753 gpu 0 running AllGather 3 AllReduce 6 Broadcast 3 ReduceScatter 3
  1 192.0.2.2-1754 gpu 1 running AllGather 3 AllReduce 6 Broadcast 3 ReduceScatter 3
  2 192.0.2.2-1755 gpu 2 running AllGather 3 AllReduce 6 Broadcast 3 ReduceScatter 3
  3 192.0.2.2-1756 gpu 3 unresponsive
`)
}

func TestJSONCut(t *testing.T) {
	whole := strings.TrimSpace(capture(t, "stopped-1s.json"))
	for i := 0; i < len(whole); i += 7 {
		s, err := ParseJSON(strings.NewReader(whole[:i]))
		if err == nil && (!errors.Is(s.Cut, io.ErrUnexpectedEOF) || s.Damage != nil) {
			t.Fatalf("after %d bytes: cut %v, damage %v", i, s.Cut, s.Damage)
		}
	}
}

// TestJSONDamage: what is not a communicator is left out, and reported.
func TestJSONDamage(t *testing.T) {
	one := func(comm string) string {
		return `{"nccl_version": "2.28.9", "communicators_count": 2147483647, "communicators": [` + comm + `,
			{"hash": "0x1", "size": 1, "ranks_count": 1, "missing_ranks_count": 0, "missing_ranks": [],
			"ranks": [{"rank": 0, "host": "::ffff:10.0.0.1", "pid": 7, "status": {"init_state": 7}}]}]}`
	}
	head := `"hash": "0x2", "size": 2, "missing_ranks_count": 0, `
	for name, test := range map[string]struct{ comm, says string }{
		"hash":    {`{"hash": "2", "size": 1}`, `hash "2"`},
		"size":    {`{"hash": "0x2", "size": 2000000000}`, "2000000000 ranks"},
		"number":  {`{"hash": "0x2", "size": 1e99}`, "1e99"},
		"type":    {`{"hash": 7}`, "string"},
		"counted": {`{` + head + `"ranks_count": 2, "ranks": []}`, "is said to have 2 ranks"},
		"rank":    {`{` + head + `"ranks_count": 1, "ranks": [{"rank": 2, "host": "unknown"}]}`, "a rank 2"},
		"host":    {`{` + head + `"ranks_count": 1, "ranks": [{"rank": 1, "host": "x", "pid": 1}]}`, `host "x"`},
		"pid": {
			`{` + head + `"ranks_count": 1, "ranks": [{"rank": 1, "host": "::1", "pid": 5000000}]}`, "5000000",
		},
		"not a list": {`{` + head + `"ranks_count": 1, "ranks": {}}`, "object"},
		"launched": {
			`{` + head + `"ranks_count": 1, "ranks": [{"rank": 1, "host": "::1", "pid": 1, ` +
				`"collective_counts": {"AllReduce": -5}}]}`, "-5",
		},
		"result": {
			`{` + head + `"ranks_count": 1, "ranks": [{"rank": 1, "host": "::1", "pid": 1, ` +
				`"status": {"async_error": 77}}]}`, "results 0 and 77",
		},
		"twice": {
			`{` + head + `"ranks_count": 2, "ranks": [{"rank": 1, "host": "::1", "pid": 1}, ` +
				`{"rank": 1, "host": "::1", "pid": 2}]}`, "rank 1 twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseJSON(strings.NewReader(one(test.comm)))
			if err != nil || s.Cut != nil || len(s.Damage) != 1 || !strings.Contains(s.Damage[0], test.says) {
				t.Fatalf("%v: cut %v, damage %v; want one that says %s", err, s.Cut, s.Damage, test.says)
			}
			s.Damage = nil
			compare(t, s, nil, "nccl 2.28.9\n0x1 of 1\n  0 10.0.0.1-7 gpu 0 initializing results 7 0\n")
		})
	}
}

func TestEvents(t *testing.T) {
	// The first is NVIDIA's own example.
	input := `{
  "timestamp": "2025-12-19 13:07:07",
  "group": "LIFECYCLE",
  "event": "PEER_DEAD",
  "peer": {
    "host": "172.16.64.245",
    "pid": 1524345,
    "cuda_devs": [1],
    "nvml_devs": [1]
  },
  "details": ""
}
{
  "event": "PEER_UNRESPONSIVE",
  "peer": {
    "host": "fe80::1",
    "pid": 7
  },
  "details": "no answer for 5s"
}
{
  "timestamp": "2025-12-19 13:07:10",
  "event": "PEER_RETRY",
  "peer": {
    "addr": "10.0.0.9<4711>"
  },
  "details": "connect"
}
{
  "event": "PEER_NEW",
  "details": "a "quote""
}
{
{
}
RAS Monitor Mode - watching for peer changes
{
  "event": "PEER_NEW",
  "peer": {
    "host": "10.0.0.9",
    "pid": 0
  }
}
{
  "event": "PEER_CONNECTED",
  "details": ""
}
`
	want := []Event{
		{Name: PeerDead, Process: Process{addr("172.16.64.245"), 1524345}},
		{Name: PeerUnresponsive, Process: Process{addr("fe80::1"), 7}},
		{Name: "PEER_RETRY"},
		{Name: PeerConnected},
	}
	var events events
	var got []Event
	for line := range strings.Lines(input) {
		if ev, ok := events.line(strings.TrimSuffix(line, "\n")); ok {
			got = append(got, ev)
		}
	}
	if diff := cmp.Diff(want, got, byString); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	events.line("{")
	for range 1000 {
		events.line(strings.Repeat("x", 1000))
	}
	if events.within || events.object.Len() > maxEvent {
		t.Errorf("an event of any size is kept: %d bytes", events.object.Len())
	}
}

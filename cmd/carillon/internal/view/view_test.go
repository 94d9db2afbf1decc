package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // screens show times of day
	os.Exit(m.Run())
}

// snapshot reads a snapshot that was recorded from a process.
func snapshot(t *testing.T, name string) *health.Snapshot {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	s := &health.Snapshot{}
	var taken struct{ Time time.Time }
	if err := errors.Join(json.Unmarshal(text, s), json.Unmarshal(text, &taken)); err != nil {
		t.Fatal(err)
	}
	s.Time = taken.Time
	return s
}

// recorded compares text with testdata/name.
func recorded(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	datadriven.RunTest(t, path, func(*testing.T, *datadriven.TestData) string { return text })
}

// hang is a job that hangs, as rank 0 reports it, 10 s later.
func hang(t *testing.T) (*View, time.Time) {
	t.Helper()
	s := snapshot(t, "hang.json")
	v, now := &View{}, s.Time.Add(10*time.Second)
	v.Merge(s.Time, s)
	return v, now
}

// hugeJob has 4096 ranks, three of which aren't running, two verdicts and conditions.
func hugeJob(t *testing.T) (*View, time.Time) {
	t.Helper()
	s := snapshot(t, "hang.json")
	s.Size, s.Ranks = 4096, nil
	for i := range s.Size {
		r := health.Rank{Rank: i, State: "alive", Host: "node" + string(rune('a'+i/512)), PID: 1000 + i, Since: s.Time}
		switch i {
		case 7, 2048:
			r.State, r.Text = "dead", "killed by signal 9"
		case 9:
			r.State = "stopped"
		}
		s.Ranks = append(s.Ranks, r)
	}
	second := s.Verdicts[0]
	second.ID, second.Since = "0", s.Time.Add(-time.Minute)
	second.Text = verdict.Sentence("rank 7 (node-a, 1007) has died: killed by signal 9; 4095 ranks wait")
	s.Verdicts = append(s.Verdicts, second)
	s.Conditions = append(s.Conditions,
		health.Condition{
			Code: "gpu_throttled", Subject: "GPU 3", Severity: bus.Warning, Text: "GPU 3 is throttled: it is too hot",
			Advice: "look at its fans", Since: s.Time,
		},
		health.Condition{
			Code: "gpu_lost", Subject: "GPU 4", Severity: bus.Critical, Text: "silent", Since: s.Time,
			Cause: "gpu_throttled",
		})
	v := &View{}
	v.Merge(s.Time, s)
	return v, s.Time.Add(3 * time.Second)
}

func someEvents(at time.Time) []*bus.Event {
	return []*bus.Event{
		{Type: semconv.EventRankJoined, Time: at, Subject: "rank 3 (vm-24211)", Text: "rank 3 (vm-24211) joined"},
		{
			Type: semconv.EventVerdictOpened, Stage: bus.Opened, Severity: bus.Critical, Time: at.Add(time.Second),
			Subject: "rank 2", Reason: "not_entered", Text: "rank 2 has not entered all_reduce 2",
		},
		{
			Type: semconv.EventRankDead, Severity: bus.Warning, Time: at.Add(2 * time.Second), Subject: "rank 1",
			Text: "\x1b[2J\x1b[31mFAKE\nLINE\u202e",
		},
	}
}

func TestTexts(t *testing.T) {
	v, now := hang(t)
	recorded(t, "hang-status.txt", v.Report(now).Text(80, false))
	v, now = hugeJob(t)
	recorded(t, "huge-status.txt", v.Report(now).Text(0, true))
	recorded(t, "nothing.txt",
		strings.Join((&Frame{Note: "waiting for a process that answers", Columns: 60, Rows: 6}).Lines(), "\n"))
}

// TestHostileTexts: control characters in any field from a process have no effect.
func TestHostileTexts(t *testing.T) {
	const evil = "\x1b]0;pwned\x07\x9b31m\u009b2J\u202eevil\r\n\x00"
	s := snapshot(t, "hang.json")
	s.Job = evil
	s.Ranks[1].State, s.Ranks[2].Text, s.Ranks[2].State, s.Ranks[2].Member = evil, evil, "dead", evil
	s.Ranks[2].Host = evil
	s.Verdicts[0].Text, s.Verdicts[0].Evidence = verdict.Sentence(evil), []verdict.Text{verdict.Sentence(evil), {}}
	s.Comms[0].Name, s.Comms[0].State, s.Comms[0].InFlight.Call = evil, evil, evil
	s.Conditions = []health.Condition{
		{Code: evil, Subject: evil, Severity: bus.Critical, Text: evil, Advice: evil, Since: s.Time},
	}
	var v View
	v.Merge(s.Time, s)
	r := v.Report(s.Time)
	r.Problems = []string{evil}
	frame := Frame{
		Report: r, Events: []*bus.Event{{Type: evil, Subject: evil, Text: evil, Reason: evil}}, Note: evil,
		Columns: 100, Rows: 60,
	}
	object, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"text": r.Text(80, false), "screen": strings.Join(frame.Lines(), "\n"), "summary": r.Summary(),
		"JSON": string(object),
	} {
		if strings.ContainsFunc(text, func(c rune) bool {
			return c != '\n' && (c < ' ' || c >= 0x7f && c < 0xa0 || c == 0x202e)
		}) {
			t.Errorf("the %s has control characters: %q", what, text)
		}
		if !strings.Contains(text, "evil") {
			t.Errorf("the %s doesn't show the text at all", what)
		}
	}
	var back Report
	if err := json.Unmarshal(object, &back); err != nil || back.Job != strings.ToValidUTF8(evil, "\ufffd") {
		t.Errorf("as JSON the job is %q, %v", back.Job, err)
	}
}

// TestUnwatched: a job isn't called healthy if no process checks whether it hangs; one such process is enough.
func TestUnwatched(t *testing.T) {
	s := snapshot(t, "hang.json")
	s.Verdicts, s.Unwatched = nil, "RAS is off (CARILLON_RAS)"
	var v View
	v.Merge(s.Time, s)
	r := v.Report(s.Time)
	text := r.Text(0, false)
	for _, want := range []string{
		": not known, since RAS is off (CARILLON_RAS)\n",
		"VERDICTS  no process diagnoses the job: RAS is off (CARILLON_RAS)\n",
	} {
		if !strings.Contains(text, want) || strings.Contains(text, "healthy") {
			t.Errorf("want %q and nothing healthy:\n%s", want, text)
		}
	}
	if object, err := r.JSON(); err != nil ||
		!strings.Contains(string(object), `"unwatched": "RAS is off (CARILLON_RAS)"`) {
		t.Errorf("%s, %v", object, err)
	}
	other := *s
	other.Rank, other.PID, other.Unwatched = 1, s.Ranks[1].PID, ""
	v.Merge(s.Time, s, &other)
	if text := v.Report(s.Time).Text(0, false); !strings.Contains(text, ": healthy\n") {
		t.Errorf("with one that looks:\n%s", text)
	}
}

// TestActs: a split is shown without the number of the operation by which the ranks agree on it.
func TestActs(t *testing.T) {
	s := snapshot(t, "hang.json")
	s.Comms = s.Comms[:1]
	s.Comms[0].InFlight.Call, s.Comms[0].InFlight.Seq = "split", 777
	var v View
	v.Merge(s.Time, s)
	text := v.Report(s.Time).Text(0, false)
	if !strings.Contains(text, "    split, ") || strings.Contains(text, "777") {
		t.Errorf("it doesn't name the split, or by a number:\n%s", text)
	}
}

// TestCaptured: a communicator whose operations were captured in graphs is shown, although none is in flight.
func TestCaptured(t *testing.T) {
	s := snapshot(t, "hang.json")
	s.Comms = s.Comms[:1]
	s.Comms[0].InFlight, s.Comms[0].Captured = nil, 12
	var v View
	v.Merge(s.Time, s)
	const want = "12 operations captured in CUDA graphs, whose replays are not seen\n"
	if text := v.Report(s.Time).Text(0, false); strings.Count(text, want) != 1 ||
		!strings.Contains(text, "1, 0 busy") {
		t.Errorf("it doesn't say %q:\n%s", want, text)
	}
}

// TestJobRanks: the ranks of a smaller communicator have different numbers in it, and the job's ranks are shown as
// well.
func TestJobRanks(t *testing.T) {
	s := snapshot(t, "hang.json")
	s.Rank = 2
	s.Comms = s.Comms[:1]
	s.Comms[0].Rank, s.Comms[0].Size = 1, 3
	var v View
	v.Merge(s.Time, s)
	r := v.Report(s.Time)
	if text := r.Text(0, false); !slices.Equal(r.Comms[0].JobRanks, []int{2}) ||
		!strings.Contains(text, "3 ranks, 1 of them seen from here: the job's rank 2\n") ||
		!strings.Contains(text, "rank 2 (1 on world); waiting for rank 2 of world\n") {
		t.Errorf("%v:\n%s", r.Comms[0].JobRanks, text)
	}
	for _, told := range []int{0, 3} { // the communicator's ranks 0, 1 and 2 are the job's ranks 0, 2 and 3
		other := snapshot(t, "hang.json")
		other.Rank, other.PID = told, 100+told
		other.Comms = other.Comms[:1]
		other.Comms[0].Rank, other.Comms[0].Size = map[int]int{0: 0, 3: 2}[told], 3
		v.Merge(s.Time, other)
	}
	const want = "all ranks; waiting for rank 3 (2 on world)"
	if text := v.Report(s.Time).Text(0, false); !strings.Contains(text, want) {
		t.Errorf("it doesn't say %q:\n%s", want, text)
	}
	making := snapshot(t, "hang.json")
	making.Rank, making.Comms = 3, making.Comms[:1]
	making.Comms[0].Size, making.Comms[0].State = 0, "none"
	var early View
	early.Merge(s.Time, making)
	if text := early.Report(s.Time).Text(0, false); !strings.Contains(text, "is being created by rank 3\n") {
		t.Errorf("of a communicator without ranks:\n%s", text)
	}
	s.Rank = 1
	var same View
	same.Merge(s.Time, s)
	if r := same.Report(s.Time); r.Comms[0].JobRanks != nil || strings.Contains(r.Text(0, false), "the job's") {
		t.Errorf("the same numbers: %v:\n%s", r.Comms[0].JobRanks, r.Text(0, false))
	}
}

func TestCodes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*health.Snapshot)
		code   int
	}{
		"a verdict": {func(*health.Snapshot) {}, 2},
		"a straggler": {func(s *health.Snapshot) {
			s.Verdicts[0].Reason, s.Verdicts = verdict.Straggler, s.Verdicts[:1]
		}, 1},
		"not enough is known": {func(s *health.Snapshot) {
			s.Verdicts[0].Reason, s.Verdicts = verdict.Unknown, s.Verdicts[:1]
		}, 1},
		"a straggler, and a symptom that is critical": {func(s *health.Snapshot) {
			s.Verdicts[0].Reason, s.Verdicts = verdict.Straggler, s.Verdicts[:1]
			s.Conditions = []health.Condition{{Code: "x", Severity: bus.Critical}}
		}, 2},
		"healthy":          {func(s *health.Snapshot) { s.Verdicts, s.Conditions = nil, nil }, 0},
		"a rank that left": {func(s *health.Snapshot) { s.Verdicts, s.Ranks[1].State = nil, "left" }, 0},
		"a dead rank":      {func(s *health.Snapshot) { s.Verdicts, s.Ranks[1].State = nil, "dead" }, 1},
		"a warning": {func(s *health.Snapshot) {
			s.Verdicts, s.Conditions = nil, []health.Condition{{Code: "x", Severity: bus.Warning}}
		}, 1},
		"something critical": {func(s *health.Snapshot) {
			s.Verdicts, s.Conditions = nil, []health.Condition{{Code: "x", Severity: bus.Critical}}
		}, 2},
		"nobody looks": {func(s *health.Snapshot) { s.Verdicts, s.Unwatched = nil, "RAS is off" }, CodeUnknown},
		"nobody looks, and a dead rank": {func(s *health.Snapshot) {
			s.Verdicts, s.Unwatched, s.Ranks[1].State = nil, "RAS is off", "dead"
		}, 1},
		"a symptom": {func(s *health.Snapshot) {
			s.Verdicts, s.Conditions = nil, []health.Condition{{Code: "x", Severity: bus.Critical, Cause: "y"}}
		}, 0},
	} {
		s := snapshot(t, "hang.json")
		c.change(s)
		var v View
		v.Merge(s.Time, s)
		if got := v.Report(s.Time).Code(); got != c.code {
			t.Errorf("%s: %d, want %d", name, got, c.code)
		}
	}
	if got := (&View{}).Report(time.Now()).Code(); got != CodeUnknown {
		t.Errorf("nothing: %d, want %d", got, CodeUnknown)
	}
}

// TestStale: the last report of a process that no longer answers is shown with its age, and so are communicators and
// conditions that only such processes report.
func TestStale(t *testing.T) {
	first := snapshot(t, "hang.json")
	second := snapshot(t, "hang.json")
	second.Rank, second.PID, second.Host = 3, first.Ranks[3].PID, first.Ranks[3].Host
	second.Comms = slices.Clone(second.Comms)
	second.Comms[0].Rank = 3
	second.Conditions = []health.Condition{
		{Code: "gpu_throttled", Subject: "GPU 3", Severity: bus.Warning, Text: "it is too hot", Since: first.Time},
	}
	first.Conditions = nil
	at := first.Time
	for name, tc := range map[string]struct {
		why  string
		hurt func(*View)
	}{
		"no answer":   {"no answer", func(v *View) { v.Unanswered(second) }},
		"unreachable": {"unreachable", func(v *View) { setState(v, 3, "unreachable") }},
		"suspect": {"suspect", func(v *View) {
			setState(v, 3, "suspect")
			v.Unanswered(second)
		}},
		"slow, perhaps": {"", func(v *View) { setState(v, 3, "suspect") }},
	} {
		v := &View{}
		v.Merge(at, first, second)
		if r := v.Report(at); len(r.Stale) > 0 || strings.Contains(r.Text(0, false), "stale") {
			t.Errorf("%s: before it is, stale are %+v", name, r.Stale)
		}
		tc.hurt(v)
		r := v.Report(at.Add(40 * time.Second))
		if tc.why == "" {
			if len(r.Stale) > 0 {
				t.Errorf("%s: stale are %+v, want none", name, r.Stale)
			}
			continue
		}
		want := []Stale{{Rank: 3, Host: second.Host, Age: 40, Why: tc.why}}
		if diff := cmp.Diff(want, r.Stale); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		text := r.Text(0, false)
		for _, says := range []string{
			"  stale       rank 3 (" + tc.why + "), last answer 40s ago\n",
			"2 of them seen from here, of rank 3 as it was 40s ago\n",
			"WARNING gpu_throttled (GPU 3) on rank 3, since 08:18:47, as it was 40s ago\n", ", as of 40s ago\n",
		} {
			if !strings.Contains(text, says) {
				t.Errorf("%s: %q is not said:\n%s", name, says, text)
			}
		}
		b, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Stale []struct {
				Age float64 `json:"age_seconds"`
			}
			Comms []struct {
				Stale []int
				Age   float64 `json:"stale_age_seconds"`
			}
			Conditions []struct {
				Age float64 `json:"stale_age_seconds"`
			}
		}
		if err := json.Unmarshal(b, &got); err != nil || len(got.Stale) != 1 || got.Stale[0].Age != 40 ||
			!slices.Equal(got.Comms[0].Stale, []int{3}) || got.Comms[0].Age != 40 || got.Conditions[0].Age != 40 {
			t.Errorf("%s: as JSON it is %+v, %v", name, got, err)
		}
		v.Merge(at.Add(41*time.Second), first, second)
		if r := v.Report(at.Add(41 * time.Second)); len(r.Stale) > 0 || r.Quiet() > 0 {
			t.Errorf("%s: when it tells again, stale are %+v, and quiet it is for %v", name, r.Stale, r.Quiet())
		}
	}
	v := &View{}
	v.Merge(at, first, second)
	late := at.Add(staleAfter + time.Second)
	v.Merge(late, first)
	if r := v.Report(late); len(r.Stale) != 1 || r.Stale[0].Why != "not asked" {
		t.Errorf("who was not asked for %v: stale are %+v", late.Sub(at), r.Stale)
	}
}

// setState sets a rank's state, as a snapshot would.
func setState(v *View, rank int, state string) {
	for key, r := range v.ranks {
		if r.Rank == rank {
			r.State = state
			v.ranks[key] = r
		}
	}
}

func TestEventLine(t *testing.T) {
	at := time.Date(2025, 3, 4, 6, 12, 3, 0, time.Local)
	for _, c := range []struct {
		ev   bus.Event
		want string
	}{
		{
			bus.Event{
				Type: semconv.EventVerdictOpened, Severity: bus.Critical, Subject: "rank 3", Reason: "not_entered",
				Text: "rank 3 has not entered all_reduce #41",
			},
			"06:12:03 CRITICAL verdict.opened: rank 3 has not entered all_reduce #41 (reason not_entered)",
		},
		{
			bus.Event{
				Type: semconv.EventVerdictWithdrawn, Stage: bus.Closed, Severity: bus.Critical,
				Text: "rank 3 had not entered", Repeats: 2, Suppressed: 12,
			},
			"06:12:03 over     verdict.withdrawn: rank 3 had not entered (2 more like it, 12 symptoms were held back)",
		},
		{bus.Event{Type: semconv.EventRankDead, Severity: bus.Warning}, "06:12:03 WARNING  rank.dead"},
		{
			bus.Event{Type: semconv.EventRankDead, Job: "train", Text: "killed"},
			"06:12:03 info     train: rank.dead: killed",
		},
		{ // from another process, and hostile
			bus.Event{Type: semconv.EventRankDead, Text: "\x1b[2J\u202edead\nFAKE LINE"},
			"06:12:03 info     rank.dead: \\u001b[2J\\u202edead; FAKE LINE",
		},
	} {
		c.ev.Time = at
		if got := EventLine(&c.ev); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

// TestSeveralJobs: an agent of two jobs reports each thing for one of them. Verdicts on ranks that never came have the
// same id in both.
func TestSeveralJobs(t *testing.T) {
	at := time.Date(2025, 3, 4, 6, 12, 3, 0, time.Local)
	s := &health.Snapshot{Time: at, Rank: -1, Host: "vm", PID: 1}
	for i, job := range []string{"a", "b"} {
		for rank := range 3 {
			pid := 10*(i+1) + rank
			s.Ranks = append(s.Ranks, health.Rank{
				Job: job, Rank: rank, State: "alive", Member: fmt.Sprintf("vm-%d", pid), Host: "vm", PID: pid,
			})
		}
		s.Comms = append(s.Comms, health.Comm{
			Job: job, ID: lifecycle.CommID{byte(i + 1)}, Name: "world", Size: 4, State: "ready",
			InFlight: &health.Op{Call: "all_reduce", Seq: 7},
		})
		found := verdict.Verdict{
			ID: "v", Reason: verdict.NotJoined, Culprits: []verdict.Rank{{Job: 3}},
			Text: verdict.Sentence("rank 3 is late"),
		}
		s.Verdicts = append(s.Verdicts, health.Verdict{Job: job, ID: "v", Since: at, Verdict: found})
	}
	s.Ranks[4].State = "stopped"
	var v View
	v.Merge(at, s)
	r := v.Report(at)
	text := r.Text(0, false)
	for _, want := range []string{
		"jobs a and b: warning, 2 verdicts are open\n", " not_joined of a (", " not_joined of b (",
		"RANKS  6 on 1 host\n", "  culprit     rank 3 of a, rank 3 of b\n",
		"  alive       ranks 0 to 2 of a, ranks 0 and 2 of b\n", "    rank 1 of b (vm-21)",
		"  world  0100000000000000 of a  4 ranks",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it doesn't say %q:\n%s", want, text)
		}
	}
	if got := r.Summary(); !strings.HasPrefix(got, "jobs a and b: warning") || !strings.HasSuffix(got, ", 6 ranks") {
		t.Errorf("the summary is %q", got)
	}
}

// TestContainers: processes that have the same pid in containers of one host are distinguished by their hosts' names,
// and named as in verdicts.
func TestContainers(t *testing.T) {
	at := time.Date(2025, 3, 4, 6, 12, 3, 0, time.Local)
	var v View
	var local []Local
	var snapshots []*health.Snapshot
	for i, host := range []string{"pod-0", "pod-1"} {
		comm := health.Comm{ID: lifecycle.CommID{1}, Name: "last", Rank: i, Size: 2, State: "ready"}
		local = append(local, Local{Host: host, PID: 54, Comm: comm})
		snapshots = append(snapshots, &health.Snapshot{
			Time: at, Rank: 2 + i, Size: 4, Host: host, PID: 54, Comms: []health.Comm{comm},
			Ranks: []health.Rank{{Rank: 2 + i, State: "stopped", Member: "vm-1700", Host: host, PID: 54}},
		})
	}
	v.Merge(at, snapshots...)
	v.Tapes(local)
	r := v.Report(at)
	if len(r.Comms) != 1 || !slices.Equal(r.Comms[0].JobRanks, []int{2, 3}) {
		t.Errorf("the communicators are %+v", r.Comms)
	}
	if text := r.Text(0, false); !strings.Contains(text, "    rank 3 (pod-1-54)\n") {
		t.Errorf("rank 3 is called otherwise:\n%s", text)
	}
}

// TestProcessesWithoutNumber: processes without a rank are shown by their names, and not counted as ranks.
func TestProcessesWithoutNumber(t *testing.T) {
	r := Report{Ranks: []health.Rank{
		{Rank: 0, State: "alive", Member: "vm-6", Host: "vm"},
		{Rank: -1, State: "alive", Member: "vm-7", Host: "vm"},
		{Rank: -1, State: "dead", Member: "vm-8", Host: "vm", Text: "killed"},
	}}
	text := r.Text(0, false)
	for _, want := range []string{
		"RANKS  1 on 1 host\n", "  alive       rank 0, vm-7\n", "  dead        vm-8\n    vm-8: killed\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it doesn't say %q:\n%s", want, text)
		}
	}
}

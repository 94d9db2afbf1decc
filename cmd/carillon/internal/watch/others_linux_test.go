package watch

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/health"
)

// TestOthers: ranks that run elsewhere are asked, once, if a trusted process names them; a token that was sent over TLS
// isn't sent without.
func TestOthers(t *testing.T) {
	at := func(host string, pid int, state, url string) health.Rank {
		return health.Rank{Rank: pid, State: state, Host: host, PID: pid, URL: url}
	}
	ranks := []health.Rank{
		at("a", 1, "alive", "http://a:1"), // the one that reports
		at("a", 2, "alive", "http://a:2"), // on this host
		at("b", 3, "alive", "http://b:3/"),
		at("b", 4, "suspect", "https://b:4"),
		at("b", 5, "dead", "http://b:5"),
		at("b", 6, "stopped", "http://b:6"),
		at("b", 7, "alive", ""),
		at("b", 8, "alive", "http://user:password@b:8"),
		at("b", 9, "alive", "ftp://b:9"),
		at("b", 10, "alive", "http://given:1"),
	}
	tells := func(ranks []health.Rank) *health.Snapshot {
		return &health.Snapshot{Host: "a", PID: 1, Ranks: ranks}
	}
	job := &find.Job{Processes: []find.Process{{Host: "a", PID: 1}, {Host: "a", PID: 2}}}
	for name, tc := range map[string]struct {
		first   endpoint.Target
		silent  bool
		trusted bool // the endpoint without TLS is trusted
	}{
		"plain":        {endpoint.Target{URL: "http://a:1", Trusted: true}, false, true},
		"loopback":     {endpoint.Target{URL: "http://127.0.0.1:1", Trusted: true}, false, false},
		"TLS":          {endpoint.Target{URL: "https://a:1", Trusted: true}, false, false},
		"not trusted":  {endpoint.Target{URL: "http://a:1"}, false, false},
		"did not tell": {endpoint.Target{URL: "http://a:1", Trusted: true}, true, false},
	} {
		targets := []endpoint.Target{tc.first, {URL: "http://given:1", Trusted: true}}
		answers := map[endpoint.Target]*health.Snapshot{}
		if !tc.silent {
			answers[tc.first] = tells(append(ranks, ranks...))
		}
		var want []endpoint.Target
		if tc.first.Trusted && !tc.silent {
			want = []endpoint.Target{
				{URL: "http://b:3", Trusted: tc.trusted, Of: "rank 3 (b-3)"},
				{URL: "https://b:4", Trusted: true, Of: "rank 4 (b-4)"},
			}
		}
		if diff := cmp.Diff(want, Others(job, targets, answers)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	given := []endpoint.Target{{URL: "http://a:1", Trusted: true}}
	answers := map[endpoint.Target]*health.Snapshot{given[0]: tells(ranks[:2])}
	if got := Others(nil, given, answers); len(got) != 1 || got[0].URL != "http://a:2" {
		t.Errorf("without a job of this host: %v, want the other one of it", got)
	}
}

// TestWatchAsksOthers: a rank is asked even if only its address is known, and a rank that can't be reached isn't asked
// again.
func TestWatchAsksOthers(t *testing.T) {
	a, b, c := newRank(t, 0), newRank(t, 1), newRank(t, 2)
	c.die()
	ranks := []health.Rank{
		{Rank: 0, State: "alive", Host: "a", PID: 100, URL: a.URL},
		{Rank: 1, State: "alive", Host: "b", PID: 101, URL: b.URL},
		{Rank: 2, State: "alive", Host: "c", PID: 102, URL: c.URL},
	}
	a.snapshot["ranks"], b.snapshot["host"], b.snapshot["ranks"] = ranks, "b", ranks
	client, err := endpoint.New(endpoint.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	own := []endpoint.Target{{URL: a.URL, Trusted: true}}
	w := newWatcher(Config{Client: client, Targets: own, Display: newDisplay()})
	for range 3 { // as the poller does
		w.look()
		to, wait := w.poller.next(time.Now())
		if wait > 0 {
			break
		}
		s, err := client.Snapshot(t.Context(), to)
		w.answer(answer{to, s, err})
	}
	w.look()
	if diff := cmp.Diff([]int{0, 1}, w.view.Report(time.Now()).Told); diff != "" {
		t.Errorf("who told (-want +got):\n%s", diff)
	}
	other := endpoint.Target{URL: b.URL, Trusted: true, Of: "rank 1 (b-101)"}
	if diff := cmp.Diff([]endpoint.Target{own[0], other}, w.poller.targets); diff != "" {
		t.Errorf("who is asked (-want +got):\n%s", diff)
	}
	if w.problem != "" {
		t.Errorf("the problem is %s, want none: it is another host's", w.problem)
	}

	// A rank that has answered before is asked again after a failure: its last report ages on the screen.
	w.answer(answer{other, nil, errors.New("it is slow")})
	w.look()
	if !slices.Contains(w.poller.targets, other) {
		t.Error("one that has answered before isn't asked any more")
	}
	// A rank that has left is forgotten.
	told := *w.last[own[0]]
	told.Ranks = slices.Clone(ranks)
	told.Ranks[1].State = "left"
	w.answer(answer{own[0], &told, nil})
	w.away[endpoint.Target{URL: c.URL, Trusted: true, Of: "rank 2 (c-102)"}] = time.Now().Add(-awayFor)
	w.look()
	_, asked := w.poller.asked[other]
	if w.last[other] != nil || asked || len(w.away) != 0 {
		t.Errorf("of one that has left is remembered: told %v, asked %v; away are %v",
			w.last[other] != nil, asked, w.away)
	}
}

// TestTargets: the endpoints of a job are known by their processes, so that errors name these.
func TestTargets(t *testing.T) {
	job := &find.Job{Processes: []find.Process{
		{Host: "a", PID: 7, Rank: 2, URL: "http://127.0.0.1:1", Own: true},
		{Host: "a", PID: 8, Rank: 3},
		{Host: "a", PID: 9, Rank: -1, URL: "http://127.0.0.1:2"},
	}}
	var got []string
	for _, target := range Targets(job) {
		got = append(got, target.String())
	}
	want := []string{"rank 2 (a-7) at http://127.0.0.1:1", "process a-9 at http://127.0.0.1:2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

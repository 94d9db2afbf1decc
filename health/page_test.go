package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// TestPage: the page shows what is wrong, markup in its texts has no effect, and it loads nothing.
func TestPage(t *testing.T) {
	const evil = `<script>alert(1)</script>`
	r := &Registry{}
	for name, err := range map[string]error{
		"disk": errors.New("full " + evil), "process": nil,
		"gpu": Well("no GPU " + evil),
	} {
		if e := r.Register(name, Ready, 0, func(context.Context) error { return err }); e != nil {
			t.Fatal(e)
		}
	}
	c := &Conditions{}
	severity := bus.Critical
	for _, d := range []Declaration{{Code: "gpu_lost"}, {Code: "gpu_hot", DependsOn: []string{"gpu_lost"}}} {
		w, err := c.Declare(d)
		if err != nil {
			t.Fatal(err)
		}
		w.Set(Finding{Subject: "GPU 3", Text: "of " + d.Code + evil, Advice: "drain the node", Severity: severity})
		severity = bus.Warning
	}
	snapshot := sample()
	snapshot.Comms[0].Name, snapshot.Comms[0].InFlight.Bytes = evil, 16<<20
	snapshot.Comms[0].InFlight.WaitRank = new(int32(0))
	part := snapshot.Comms[0]
	part.Parent, part.Name = lifecycle.CommID{7}, "dp"
	snapshot.Comms = append(snapshot.Comms, part)
	for i := range 300 {
		snapshot.Ranks = append(snapshot.Ranks, Rank{Rank: 2 + i, State: "alive"})
	}
	snapshot.Ranks[301].State = "stopped"
	p := &Publisher{}
	p.Publish(snapshot)
	s := listen(t, Config{Registry: r, Conditions: c, Publisher: p, Title: "Carillon & " + evil})
	resp, body := send(t, s, request("/"))
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	for _, want := range []string{
		`<span class="badge critical">critical</span>`, "<title>critical: Carillon &amp; &lt;script&gt;", "rank_dead",
		"rank 0 was killed by signal 9", "of gpu_lost&lt;script&gt;", "drain the node",
		"and what follows from that: gpu_hot (GPU 3): of gpu_hot", "<code>disk</code>: full &lt;script&gt;",
		"The others are well (2)", "<code>gpu</code>: no GPU &lt;script&gt;", "300 of 302 known are alive",
		"<td>301</td><td class=\"stopped\">stopped</td>", "The first 200", "all_reduce 3, 16 MiB",
		`href="api/v1/verdicts"`, "<td>rank 0</td>", "<td>rank 0 of &#34;dp&#34;</td>",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, evil) || strings.Contains(body, "http://") || strings.Contains(body, "https://") ||
		strings.Count(body, "<td>node") > 0 {
		t.Errorf("the page has what isn't its own:\n%s", body)
	}
	if rows := strings.Count(body, `<td class="alive">`) + strings.Count(body, `<td class="dead">`) +
		strings.Count(body, `<td class="stopped">`); rows != maxRows {
		t.Errorf("%d rows of ranks", rows)
	}
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	if t.Failed() {
		t.Log(body)
	}
}

// TestPageTellsACauseOnce: a verdict is not repeated as a condition and a failed check, its culprit is marked, and its
// ages are current and keep running.
func TestPageTellsACauseOnce(t *testing.T) {
	c := &Conditions{}
	stalled, err := c.Declare(Declaration{Code: "job_stalled", NotReady: true})
	if err != nil {
		t.Fatal(err)
	}
	stalled.Set(Finding{Subject: "abc", Text: "rank 1 has not entered", Severity: bus.Critical})
	found := verdict.Verdict{
		ID: "abc", Reason: verdict.NotEntered, Culprits: []verdict.Rank{{Job: 1, Member: "h1-4711"}},
	}
	snapshot := sample()
	snapshot.Time = time.Now().Add(-time.Minute)
	snapshot.Verdicts = []Verdict{{Job: "train", ID: "abc", Since: snapshot.Time, Verdict: packedVerdict(found)}}
	p := &Publisher{}
	p.Publish(snapshot)
	_, body := send(t, listen(t, Config{Conditions: c, Publisher: p}), request("/"))
	for _, want := range []string{
		`rank 1 &amp; co. has not entered for <span data-age="`,
		`<span class="critical">failed</span> <code>job_stalled</code>, as said above.`,
		`<tr class="culprit"><td>1</td>`, `culprit: <code>not_entered</code>`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if age := regexp.MustCompile(`entered for <span data-age="([\d.]+)">`).FindStringSubmatch(body); age != nil {
		if seconds, err := strconv.ParseFloat(age[1], 64); err != nil || seconds < 67 {
			t.Errorf("the age is %s, of a verdict that said 7s a minute ago", age[1])
		}
	}
	if n := strings.Count(body, "has not entered"); n != 1 {
		t.Errorf("the cause is told %d times", n)
	}
	if t.Failed() {
		t.Log(body)
	}
}

// packedVerdict returns the verdict with a sentence that has an age, as another process sends it.
func packedVerdict(v verdict.Verdict) verdict.Verdict {
	packed := v.Pack()
	packed.Said = "rank 1 & co. has not entered for \x007000000000\x00 now"
	return packed.Unpack()
}

// TestPageOfSeveralJobs: an agent's page says which job each entry belongs to, and marks only the guilty process.
func TestPageOfSeveralJobs(t *testing.T) {
	snapshot := &Snapshot{Rank: -1}
	for i, job := range []string{"a", "b"} {
		for rank := range 2 {
			member := fmt.Sprintf("h1-%d", 10*i+rank)
			snapshot.Ranks = append(snapshot.Ranks, Rank{Job: job, Rank: rank, State: "alive", Member: member})
		}
		snapshot.Comms = append(snapshot.Comms, Comm{Job: job, Size: 2, State: "ready"})
	}
	found := verdict.Verdict{ID: "v", Reason: verdict.NotEntered, Culprits: []verdict.Rank{{Job: 1, Member: "h1-11"}}}
	snapshot.Verdicts = []Verdict{{Job: "b", ID: "v", Verdict: packedVerdict(found)}}
	p := &Publisher{}
	p.Publish(snapshot)
	_, body := send(t, listen(t, Config{Publisher: p}), request("/"))
	for want, times := range map[string]int{
		"<th>job</th>": 3, `<tr class="culprit">`: 1, `<tr class="culprit"><td>b</td><td>1</td>`: 1,
		"<tr><td>a</td><td>1</td>": 1, `<tr><td>b</td><td class="critical">`: 1, "<tr><td>a</td><td></td><td><code>": 1,
	} {
		if n := strings.Count(body, want); n != times {
			t.Errorf("the page has %q %d times, want %d", want, n, times)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

// TestPageWithoutAnything: before the first snapshot, with nothing to tell.
func TestPageWithoutAnything(t *testing.T) {
	resp, body := send(t, listen(t, Config{Publisher: &Publisher{}}), request("/"))
	for _, want := range []string{`<span class="badge ok">ok</span>`, "All are well (1)", "<h1>Carillon "} {
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d, the page lacks %q:\n%s", resp.StatusCode, want, body)
		}
	}
}

func TestTexts(t *testing.T) {
	for want, got := range map[string]string{
		"0s": ago(-time.Hour), "1.23s": ago(1234 * time.Millisecond), "1m1s": ago(61499 * time.Millisecond),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestJSONOnRequest: the same answers for machines, by ?format=json or by Accept.
func TestJSONOnRequest(t *testing.T) {
	r := &Registry{}
	for name, err := range map[string]error{
		"disk": errors.New("full\nvery"), "tape": nil, "gpu": Well("no GPU\nnone"),
	} {
		if e := r.Register(name, Ready, 0, func(context.Context) error { return err }); e != nil {
			t.Fatal(e)
		}
	}
	s := listen(t, Config{Registry: r, Conditions: &Conditions{}})
	const (
		gpu = `{"name":"gpu","status":"ok","text":"no GPU; none"}`
		bad = `{"status":"failed","checks":[{"name":"disk","status":"failed","error":"full; very"},` + gpu +
			`,{"name":"tape","status":"ok"}]}`
		good = `{"status":"ok","checks":[{"name":"disk","status":"excluded"},` + gpu +
			`,{"name":"tape","status":"ok"}],"warnings":["no check named \"x\" was excluded"]}`
		one = `{"status":"ok","checks":[{"name":"tape","status":"ok"}]}`
	)
	for i, tc := range []struct {
		path, accept string
		status       int
		body         string // "" is text
	}{
		{"/readyz?format=json", "", 503, bad},
		{"/readyz", "application/json", 503, bad},
		{"/readyz", "text/plain;q=0.5, Application/JSON;q=0.9", 503, bad},
		{"/readyz?exclude=disk&exclude=x", "application/json", 200, good},
		{"/readyz/tape", "application/json", 200, one},
		{"/readyz", "*/*", 503, ""},
		{"/readyz", "application/json; q=0, text/plain", 503, ""},
		{"/readyz?format=text", "application/json", 503, ""},
		{"/readyz?format=xml", "", 503, ""},
	} {
		resp, body := send(t, s, request(tc.path, "Accept: "+tc.accept))
		kind, compact := "application/json", strings.NewReplacer("\n", "", "  ", "", `": `, `":`).Replace(body)
		if tc.body == "" {
			kind, compact = "text/plain; charset=utf-8", ""
		}
		if resp.StatusCode != tc.status || resp.Header.Get("Content-Type") != kind || compact != tc.body {
			t.Errorf("%d: %s: %d %s %s", i, tc.path, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
	}
}

// TestQueriesAllocateNothing: neither for a document nor for an answer that nothing is new.
func TestQueriesAllocateNothing(t *testing.T) {
	p := &Publisher{}
	p.Publish(sample())
	for _, header := range []http.Header{{}, {"If-None-Match": {"*"}}} {
		handler := queryRoutes(Config{Publisher: p})[0].Handler
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/ras", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr, r.Header = "10.0.0.1:1", header
		w := &discard{header: http.Header{}}
		if n := testing.AllocsPerRun(100, func() {
			clear(w.header)
			handler.ServeHTTP(w, r)
		}); n != 0 {
			t.Errorf("%v: %v allocations", header, n)
		}
	}
}

// TestManyReadersAndOnePublisher: every answer is one snapshot, whole, whatever is published meanwhile.
func TestManyReadersAndOnePublisher(t *testing.T) {
	p := &Publisher{}
	p.Publish(sample())
	routes := queryRoutes(Config{Publisher: p})
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			for range 200 {
				w := asked(t, routes, "/api/v1/ras", "10.0.0.1:1")
				if body := w.Body.String(); w.Code != 200 || !strings.HasSuffix(body, "}\n") ||
					fmt.Sprint(len(body)) != w.Header().Get("Content-Length") {
					errs <- fmt.Errorf("%d %v %q", w.Code, w.Header(), body)
					return
				}
			}
			errs <- nil
		}()
	}
	for i := range 1000 {
		s := sample()
		s.Ranks = make([]Rank, i%7)
		p.Publish(s)
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

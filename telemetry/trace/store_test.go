package trace_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

func comm(n byte) tape.CommInfo {
	return tape.CommInfo{ID: lifecycle.CommID{n}, Name: "c", Rank: 0, Size: 2}
}

func TestStoreKeepsTheLast(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.StoreTraces, c.SampleEvery = 3, 1 })
	for n := byte(1); n <= 5; n++ {
		p.act(comm(n), tape.LifeRecord{Act: tape.ActInit}, int64(n), int64(n)+1)
	}
	for seq := uint64(1); seq <= 100; seq++ { // operations that ended well push out no act
		p.op(comm(5), tape.OpRecord{
			Time: 1, Stage: tape.StageEnd, Seq: seq, Wait: -1,
			Signature: tape.Signature{Call: lifecycle.CallBarrier},
		})
	}
	store := p.Store()
	acts := store.Acts(0)
	if len(acts) != 3 {
		t.Fatalf("%d acts are kept, want 3", len(acts))
	}
	for i, n := range []byte{5, 4, 3} {
		if want := trace.ActTraceID(lifecycle.CommID{n}, tape.ActInit, 0); acts[i].ID != want {
			t.Errorf("acts[%d] is %s, want that of communicator %d", i, acts[i].ID, n)
		}
		if len(acts[i].Spans) != 2 {
			t.Errorf("acts[%d] has %d spans, want the announcement and the act", i, len(acts[i].Spans))
		}
	}
	if got := store.Acts(2); len(got) != 2 || got[0].ID != acts[0].ID {
		t.Errorf("Acts(2) isn't the newest two")
	}
	if got := len(store.Operations(0)); got != 3 {
		t.Errorf("%d operations are kept, want 3", got)
	}
	if _, ok := store.Trace(trace.ActTraceID(lifecycle.CommID{1}, tape.ActInit, 0)); ok {
		t.Error("the oldest is still there")
	}
	if got := store.ByComm(lifecycle.CommID{5}); len(got) != 4 {
		t.Errorf("ByComm has %d traces, want the init and 3 operations", len(got))
	}
}

// TestStoreBoundsATrace repeats a mistake many times, which all go into one trace.
func TestStoreBoundsATrace(t *testing.T) {
	p := newProjector(t, nil)
	p.act(comm(1), tape.LifeRecord{Act: tape.ActDestroy}, 1, 2)
	for i := range 1000 {
		p.life(comm(1), tape.LifeRecord{
			Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Time: int64(10 + i),
			Code: lifecycle.CodeDestroyed, Peer: -1,
		})
	}
	got, ok := p.Store().Trace(trace.ActTraceID(lifecycle.CommID{1}, tape.ActDestroy, 0))
	if !ok || len(got.Spans) != trace.MaxTraceSpans || got.Truncated != 1002-trace.MaxTraceSpans {
		t.Errorf("kept %d spans and counted %d", len(got.Spans), got.Truncated)
	}
}

// TestStoreJoinsRanksThatDisagree has an operation fail on one rank of this process and go well on another.
func TestStoreJoinsRanksThatDisagree(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 1 })
	for rank, code := range []lifecycle.Code{lifecycle.CodeOK, lifecycle.CodeTimeout} {
		c := comm(1)
		c.Rank = rank
		p.op(c, tape.OpRecord{
			Time: 1, Stage: tape.StageEnd, Seq: 1, Wait: -1, Code: code,
			Signature: tape.Signature{Call: lifecycle.CallBarrier},
		})
	}
	got, ok := p.Store().Trace(trace.OpTraceID(lifecycle.CommID{1}, 0, tape.Signature{Call: lifecycle.CallBarrier}, 1))
	if !ok || len(got.Spans) != 2 || (got.Spans[0].Error == "") == (got.Spans[1].Error == "") {
		t.Errorf("want both ranks' spans, got %+v", got.Spans)
	}
}

func TestStoreIsReadWhileItGrows(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.StoreTraces, c.SampleEvery, c.Processors = 4, 1, nil })
	store := p.Store()
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				all := slices.Concat(store.Acts(0), store.Operations(3), store.ByComm(lifecycle.CommID{7}))
				for _, tr := range all {
					for _, s := range tr.Spans {
						if s.TraceID != tr.ID {
							t.Errorf("span of %s in trace %s", s.TraceID, tr.ID)
						}
					}
				}
			}
		})
	}
	for n := range byte(200) {
		p.act(comm(n+1), tape.LifeRecord{Act: tape.ActInit}, int64(n), int64(n)+1)
		for rank := range 3 {
			c := comm(n%8 + 1)
			c.Rank = rank
			p.op(c, tape.OpRecord{
				Time: 9, Stage: tape.StageEnd, Seq: uint64(n), Wait: -1,
				Signature: tape.Signature{Call: lifecycle.CallBarrier},
			})
		}
	}
	close(stop)
	readers.Wait()
	if got := store.ByComm(lifecycle.CommID{8}); len(got) != 1 || len(got[0].Spans) != 3 {
		t.Errorf("of communicator 8 the store has %+v, want its last operation with three ranks", got)
	}
}

// answer is the store's answer over HTTP.
type answer struct {
	Traces []struct {
		TraceID string `json:"trace_id"`
		Name    string
		Open    bool
		Failed  bool
		Spans   []struct {
			Name, Error string
			Attributes  map[string]string
			Links       []struct{ Kind string }
			ParentID    string  `json:"parent_span_id"`
			Seconds     float64 `json:"duration_seconds"`
		}
	}
}

func ask(t *testing.T, h http.Handler, url string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
	return w.Code, w.Body.String()
}

func TestStoreOverHTTP(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 1 })
	p.act(comm(1), tape.LifeRecord{Act: tape.ActDestroy, Call: lifecycle.CallDestroy}, 1*ms, 3*ms)
	p.life(comm(1), tape.LifeRecord{
		Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Time: 5 * ms,
		Code: lifecycle.CodeDestroyed, Peer: -1, Text: "twice",
	})
	p.life(comm(2), tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageStart, Time: 6 * ms, Peer: -1}) // goes on
	p.op(comm(2), tape.OpRecord{
		Time: 1, Stage: tape.StageEnd, Seq: 1, Wait: -1,
		Signature: tape.Signature{Call: lifecycle.CallBarrier},
	})

	get := func(query string) answer {
		t.Helper()
		status, body := ask(t, p.Store(), "/api/v1/traces"+query)
		var a answer
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %v\n%s", query, status, err, body)
		}
		return a
	}
	all := get("")
	if len(all.Traces) != 2 {
		t.Fatalf("%d traces, want 2", len(all.Traces))
	}
	init, destroy := all.Traces[0], all.Traces[1]
	if init.Name != "ccl.comm.init" || !init.Open || init.Failed {
		t.Errorf("the init that goes on is shown as %+v", init)
	}
	if destroy.Name != "ccl.comm.destroy" || destroy.Open || !destroy.Failed || len(destroy.Spans) != 3 {
		t.Errorf("the double destroy is shown as %+v", destroy)
	}
	act, misuse := destroy.Spans[1], destroy.Spans[2]
	if act.Seconds != 0.002 || act.Attributes["ccl.comm.name"] != "c" || act.ParentID != "" {
		t.Errorf("the destroy is shown as %+v", act)
	}
	if misuse.Error != "twice" || misuse.Attributes["error.type"] != "destroyed" || misuse.Links[1].Kind != "first" {
		t.Errorf("the second destroy is shown as %+v", misuse)
	}
	if got := get("?ops=1"); len(got.Traces) != 1 || got.Traces[0].Name != "ccl.barrier" {
		t.Errorf("operations are %+v", got)
	}
	if got := get("?comm=" + lifecycle.CommID{1}.String()); len(got.Traces) != 1 ||
		got.Traces[0].TraceID != destroy.TraceID {
		t.Errorf("by communicator: %+v", got)
	}
	if got := get("?trace=" + init.TraceID); len(got.Traces) != 1 || got.Traces[0].TraceID != init.TraceID {
		t.Errorf("by trace: %+v", got)
	}
	if got := get("?limit=1&comm=" + lifecycle.CommID{2}.String()); len(got.Traces) != 1 ||
		got.Traces[0].TraceID != init.TraceID {
		t.Errorf("by communicator, with a limit: %+v", got)
	}
	if got := get("?limit=1"); len(got.Traces) != 1 || got.Traces[0].TraceID != init.TraceID {
		t.Errorf("with a limit: %+v", got)
	}
}

func TestStoreRefusesNonsense(t *testing.T) {
	p := newProjector(t, nil)
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"?limit=0":                           {400, "from 1 to 200"},
		"?limit=x":                           {400, "from 1 to 200"},
		"?trace=zz":                          {400, "32 hexadecimal digits"},
		"?comm=12":                           {400, "32 hexadecimal digits"},
		"?trace=" + strings.Repeat("ab", 16): {404, "never seen"},
	} {
		status, body := ask(t, p.Store(), "/api/v1/traces"+query)
		if status != want.status || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %q, want %d and %q", query, status, body, want.status, want.text)
		}
	}
}

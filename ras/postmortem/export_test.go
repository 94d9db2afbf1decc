package postmortem_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// collector receives spans by OTLP over HTTP. It keeps them as they are, or refuses all of them.
type collector struct {
	*httptest.Server
	refuse bool
	mu     sync.Mutex
	got    []byte
}

func newCollector(t *testing.T, refuse bool) *collector {
	c := &collector{refuse: refuse}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if c.refuse {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.got = append(c.got, body...)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	return c
}

func (c *collector) has(what []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.got, what)
}

// exportScript has a process that died in an all-reduce ten seconds after it made its communicator, and one that ended
// in order.
const exportScript = `host here
process p0 here closed
process p1 here
1ms p0 comm world 0/2
1ms p1 comm world 1/2
1ms together world act init 0 3ms
10s p1 act world split 1 start
10s p1 act world split 1 ok
11s p0 op world all_reduce 1 1024 -1 start
11s p1 op world all_reduce 1 1024 -1 start
12s p0 op world all_reduce 1 1024 -1 rank_dead
12s p1 op world all_reduce 1 1024 -1 wait 0`

func TestExport(t *testing.T) {
	world := commID("world")
	split := trace.ActTraceID(world, tape.ActSplit, 1)
	sig := tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1}
	op := trace.OpTraceID(world, 1, sig, 1)
	opSpan := trace.SpanID(op, 1)
	rank0 := trace.SpanID(op, 0)
	for _, c := range []struct {
		name      string
		opts      postmortem.ExportOptions
		processes int
		init      bool
		closed    bool
		split     bool
	}{
		{"what is missing", postmortem.ExportOptions{}, 1, false, false, true},
		{"a shorter window", postmortem.ExportOptions{Window: time.Second}, 1, false, false, false},
		{"all", postmortem.ExportOptions{All: true}, 2, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			col := newCollector(t, false)
			s := newStage(t)
			s.play(exportScript)
			s.write()
			report, err := postmortem.Read([]string{s.dir}, postmortem.Options{})
			if err != nil {
				t.Fatal(err)
			}
			sent, err := report.Export(t.Context(), c.opts)
			if err != nil || sent.Processes != c.processes || sent.Skipped != 2-c.processes || sent.Spans == 0 ||
				sent.Failed != 0 {
				t.Errorf("%+v, %v", sent, err)
			}
			for what, want := range map[string]struct {
				bytes []byte
				there bool
			}{
				"the operation that it died in": {opSpan[:], true},
				"why that has no end": {
					[]byte("unfinished: the tape ends before the all_reduce does, waiting for rank 0"), true,
				},
				"the split":                     {split[:], c.split},
				"the init":                      {[]byte("ccl.comm.init"), c.init},
				"the other process's operation": {rank0[:], c.closed},
			} {
				if what == "the other process's operation" && !c.closed {
					continue // as the parent of the dead process's span it is named all the same
				}
				if got := col.has(want.bytes); got != want.there {
					t.Errorf("%s is there: %v", what, got)
				}
			}
		})
	}
}

// TestExportLeavesOutWhatWasSent: spans that a process sent before it died, as its tape says, are not sent again; later
// ones are.
func TestExportLeavesOutWhatWasSent(t *testing.T) {
	world := commID("world")
	split := trace.ActTraceID(world, tape.ActSplit, 1)
	op := trace.OpTraceID(world, 1, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1}, 1)
	opSpan := trace.SpanID(op, 1)
	const refused = "11500ms p1 act world finalize 0 start\n13s p1 refused world finalize destroyed it is too late"
	for _, c := range []struct {
		name, sent, more                 string
		processes                        int
		split, op, unfinished, inBetween bool
	}{
		{"nothing", "", "", 1, true, true, false, false},
		{"the split", "exported 10500ms", "", 1, false, true, false, false},
		{"all, what it was in too", "exported 12500ms", "", 0, false, false, false, false},
		{"all but what came then", "exported 12500ms", refused, 1, false, false, false, true},
		{"what had ended", "delivered 10500ms", refused, 1, false, true, true, true},
		{"all that had ended", "delivered 13s", refused, 1, false, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			col := newCollector(t, false)
			s := newStage(t)
			script := exportScript
			script = strings.Replace(script, "process p1 here", "process p1 here "+c.sent, 1)
			s.play(script + "\n" + c.more)
			s.write()
			report, err := postmortem.Read([]string{s.dir}, postmortem.Options{})
			if err != nil {
				t.Fatal(err)
			}
			sent, err := report.Export(t.Context(), postmortem.ExportOptions{})
			if err != nil || sent.Processes != c.processes || sent.Skipped != 2-c.processes || sent.Failed != 0 ||
				(sent.Spans > 0) != (c.processes > 0) {
				t.Errorf("%+v, %v", sent, err)
			}
			if got := col.has(split[:]); got != c.split {
				t.Errorf("the split is there: %v", got)
			}
			if got := col.has(opSpan[:]); got != c.op {
				t.Errorf("the operation that it died in is there: %v", got)
			}
			if got := col.has([]byte("before the finalize does")); got != c.unfinished {
				t.Errorf("the act that it died in is there: %v", got)
			}
			if got := col.has([]byte("it is too late")); got != c.inBetween {
				t.Errorf("the misuse in between is there: %v", got)
			}
		})
	}
}

// TestExportThatIsRefused: the result says once why the spans of all processes were refused, and nothing is logged.
func TestExportThatIsRefused(t *testing.T) {
	newCollector(t, true)
	s := newStage(t)
	s.play(strings.Replace(exportScript, "here closed", "here", 1))
	s.write()
	report, err := postmortem.Read([]string{s.dir}, postmortem.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	opts := postmortem.ExportOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	if sent, err := report.Export(t.Context(), opts); err != nil || sent.Failed == 0 || sent.Spans != 0 ||
		sent.Processes != 2 || sent.Why == nil || !strings.Contains(sent.Why.Error(), "400") || logged.Len() > 0 {
		t.Errorf("%+v, %v, and in the log %q; want the spans counted as not sent, and why", sent, err, &logged)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if sent, err := report.Export(over, opts); err != nil || sent.Untried != 2 || sent.Processes != 0 {
		t.Errorf("when the time is over: %+v, %v", sent, err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier pigeon")
	if _, err := report.Export(t.Context(), postmortem.ExportOptions{}); err == nil ||
		!strings.Contains(err.Error(), "carrier pigeon") {
		t.Errorf("%v, want an error that names the value", err)
	}
}

// TestSendLeft: the spans of dead processes are sent once, by a process that has the same variables as they had.
func TestSendLeft(t *testing.T) {
	refuses := newCollector(t, true)
	s := newStage(t)
	s.play(exportScript)
	for _, p := range s.procs {
		p.Exporter = otlp.Fingerprint()
	}
	s.write()
	send := func(processes int, failed bool) {
		t.Helper()
		sent, err := postmortem.SendLeft(t.Context(), s.dir, postmortem.ExportOptions{
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil || sent.Processes != processes || (sent.Failed > 0) != failed {
			t.Errorf("%+v, %v", sent, err)
		}
	}
	t.Setenv("OTEL_SERVICE_NAME", "another")
	send(0, false)
	t.Setenv("OTEL_SERVICE_NAME", "")
	send(1, true)
	refuses.mu.Lock()
	refuses.refuse = false
	refuses.mu.Unlock()
	send(1, false)
	send(0, false)
	if sent, err := postmortem.SendLeft(t.Context(), "nowhere", postmortem.ExportOptions{}); err != nil ||
		sent != (postmortem.Exported{}) {
		t.Errorf("of a folder that isn't there: %+v, %v", sent, err)
	}
}

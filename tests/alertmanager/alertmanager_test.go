package alertmanager

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/alertmanager"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/tests/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m)) }

// server is an Alertmanager.
type server struct {
	t    *testing.T
	addr string
	run  *e2e.Job
}

func start(t *testing.T, addr string) *server {
	t.Helper()
	program, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Fatalf("%v; install it: apt-get install -y --no-install-recommends prometheus-alertmanager", err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(config, []byte("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: addr}
	s.run = e2e.Start(t, nil, program, "--config.file="+config, "--storage.path="+dir, "--web.listen-address="+addr,
		"--cluster.listen-address=")
	s.run.Await(`Listening on`)
	return s
}

type alert struct {
	Labels, Annotations map[string]string
	StartsAt, EndsAt    time.Time
}

// active returns the alerts that are firing.
func (s *server) active() []alert {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet,
		"http://"+s.addr+"/api/v2/alerts?active=true", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it is read
	var alerts []alert
	if err := json.NewDecoder(answer.Body).Decode(&alerts); err != nil || answer.StatusCode != http.StatusOK {
		s.t.Fatalf("%s, %v", answer.Status, err)
	}
	return alerts
}

// await queries Alertmanager until its alerts satisfy is.
func (s *server) await(what string, is func([]alert) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		alerts := s.active()
		if is(alerts) {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: not within 30 s; what fires is %+v", what, alerts)
		case <-tick.C:
		}
	}
}

func fires(severity, summary string) func([]alert) bool {
	return func(alerts []alert) bool {
		return len(alerts) == 1 && alerts[0].Labels["severity"] == severity &&
			alerts[0].Annotations["summary"] == summary &&
			alerts[0].Labels["alertname"] == "CarillonVerdict" && alerts[0].Labels["rank"] == "3" &&
			alerts[0].Labels["job"] == "train"
	}
}

func silent(alerts []alert) bool { return len(alerts) == 0 }

// begin runs a sink until the test ends. publish publishes an event of one verdict; end ends the sink earlier.
func begin(t *testing.T, am *server, resend time.Duration) (publish func(string, bus.Stage, bus.Severity, string),
	end func() bus.Stats,
) {
	t.Helper()
	b := bus.New(bus.Config{Job: "train"})
	sink, err := alertmanager.New(alertmanager.Config{
		SinkConfig: bus.SinkConfig{Bus: b, Logger: slog.New(slog.DiscardHandler)},
		URLs:       []string{"http://" + am.addr}, Resend: resend,
	})
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := sink.Run(context.Background()); err != nil {
			t.Error(err)
		}
	})
	end = func() bus.Stats { b.Close(); ended.Wait(); return sink.Stats() }
	t.Cleanup(func() { end() })
	return func(kind string, stage bus.Stage, severity bus.Severity, text string) {
		t.Helper()
		err := b.Publish(bus.Event{
			Type: kind, Stage: stage, Severity: severity, Key: "verdict/1", Reason: "not_entered", Rank: "3",
			Text: text,
		})
		if err != nil {
			t.Fatal(err)
		}
	}, end
}

// TestLife: the sink must resolve an alert, which would otherwise end by itself after four Resends, long after the
// test.
func TestLife(t *testing.T) {
	am := start(t, e2e.FreeAddr(t))
	publish, end := begin(t, am, time.Minute)
	publish(semconv.EventVerdictOpened, bus.Opened, bus.Warning, "rank 3 has not entered")
	am.await("opened", fires("warning", "rank 3 has not entered"))
	publish(semconv.EventVerdictChanged, bus.Changed, bus.Critical, "rank 3 is still not there")
	am.await("changed, and of another severity", fires("critical", "rank 3 is still not there"))
	publish(semconv.EventVerdictWithdrawn, bus.Closed, bus.Info, "it goes on")
	am.await("withdrawn", silent)

	// An alert opens while Alertmanager is away; a new Alertmanager, which knows of no alerts, receives it.
	am.run.Signal(syscall.SIGTERM)
	am.run.ExitCode()
	publish(semconv.EventVerdictOpened, bus.Opened, bus.Critical, "rank 3 again")
	am = start(t, am.addr)
	am.await("opened while it was away", fires("critical", "rank 3 again"))
	publish(semconv.EventVerdictWithdrawn, bus.Closed, bus.Info, "it is over")
	am.await("withdrawn from the new one", silent)
	if got := end(); got != (bus.Stats{Pushed: 5}) {
		t.Errorf("%+v, want 5 events pushed", got)
	}
}

// TestSentAgain: an alert's end is four Resends ahead, and moves on while the alert lasts.
func TestSentAgain(t *testing.T) {
	am := start(t, e2e.FreeAddr(t))
	publish, _ := begin(t, am, 500*time.Millisecond)
	publish(semconv.EventVerdictOpened, bus.Opened, bus.Critical, "rank 3 has not entered")
	am.await("opened", fires("critical", "rank 3 has not entered"))
	first := am.active()[0].EndsAt
	am.await("sent again", func(alerts []alert) bool {
		return len(alerts) == 1 && alerts[0].EndsAt.After(first.Add(2*time.Second))
	})
}

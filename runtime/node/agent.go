package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/sse"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// Agent is telemetry, RAS and health for processes of this host that have none themselves. It follows each process's
// tape with the parts with which a Node follows its own.
//
//	tape ─▶ Telemetry, health endpoint's documents ──┐             of each process
//	tape ─▶ Telemetry, health endpoint's documents ──┼─▶ JobRAS    of each job
//	pidfd, /proc ─▶ agent.Keeper ────────────────────┤      └─▶ one health endpoint
//	NCCL's RAS, of ranks without a tape ─▶ poller ────┘
//
// The processes never wait for it: it may start after them, and end before them.
type Agent struct {
	settings *settings
	self     mesh.Member
	dirs     []string // in which the jobs' tapes may be; the agent's own is the first
	all      bool     // it follows all jobs in each of dirs, not only the jobs in its own
	only     string   // the only job that it follows; empty: there may be several
	began    time.Time

	registry  *prometheus.Registry
	push      *metric.Push // nil: metrics are only pulled
	checks    health.Registry
	publisher health.Publisher
	health    *health.Server
	events    *bus.Bus // of all jobs
	stream    *sse.Handler
	streaming task

	news      *tape.News // nil: new tapes are found by scans alone
	scanning  sync.Mutex
	seen      map[string]bool            // tapes that are followed, or never will be
	following map[string]*tape.Following // by the folder of the job; nil if the lock is impossible
	others    map[string]bool            // folders of jobs that another agent follows
	refused   []error                    // why the last scan refused tapes
	mu        sync.RWMutex               // of jobs
	jobs      map[string]*keptJob

	work task // publishes and scans
	stop sync.Once

	ending atomic.Bool // the jobs were told to end
}

const (
	// dyingTime is how long an agent that stops waits for the ends of processes that were told to end: the kernel takes
	// seconds to free a process's GPU resources.
	dyingTime = 5 * time.Second
	// jobsPath is the path of the processes' endpoints, below the agent's endpoint.
	jobsPath = "/jobs/"
)

// StartAgent follows the tapes of all jobs below Config.TapeDir, including those in a default folder for lack of room,
// or below the default folders; if job is not empty, only that job. A job that another agent on this host follows is
// left to that agent until it ends. What is specific to a process, such as its rank, is taken from its tape; everything
// else from the options.
func StartAgent(ctx context.Context, job string, opts ...Option) (*Agent, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	cfg, err := resolve(opts...)
	if err != nil {
		return nil, err
	}
	if _, err := os.ReadDir(cfg.TapeDir); cfg.TapeDir != "" && err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("tapes can't be followed: %w", err)
	}
	cfg.World = launch.World{Rank: -1, LocalRank: -1, Secret: cfg.World.Secret}
	a := &Agent{
		only: job, dirs: tape.Dirs(cfg.TapeDir), began: time.Now(), registry: withProcess(),
		seen: map[string]bool{}, following: map[string]*tape.Following{}, others: map[string]bool{},
		jobs: map[string]*keptJob{}, settings: settle(cfg), all: cfg.TapeDir == "",
	}
	a.news, _ = tape.NewNews()
	if err := a.open(ctx); err != nil {
		_ = a.news.Close()
		a.endEvents(ctx)
		return nil, errors.Join(err, a.settings.sink.Close(ctx))
	}
	if job != "" {
		for _, dir := range a.dirs {
			a.mayFollow(filepath.Join(dir, job)) // before its processes begin, and other agents find them
		}
	}
	a.work.start(a.run, func(ctx context.Context) {
		a.publisher.Run(ctx, &health.Conditions{}, publishInterval, a.snapshot)
	})
	return a, nil
}

func (a *Agent) open(ctx context.Context) (err error) {
	s := a.settings
	if a.self, err = mesh.Self(-1, 0); err != nil {
		return err
	}
	a.self.Keeper = a.self.Name
	a.publisher.Publish(a.snapshot())
	if err := errors.Join(a.checks.Register("process", health.Live|health.Ready, 0, answers),
		a.checks.Register("jobs", health.Ready, 0, a.jobsReady)); err != nil {
		return err
	}
	a.events = bus.New(bus.Config{Source: "/agents/" + a.self.Name})
	a.stream = sse.New(a.events)
	a.streaming.start(func(ctx context.Context) { _ = a.stream.Run(ctx) }) // it never fails
	<-a.stream.Begun()
	routes := []health.Route{
		metricsOf(a.registry), {Path: jobsPath, Title: "the processes, each with a page of its own", Handler: a},
	}
	if s.RAS.On {
		routes = append(routes, eventsOf(a.stream))
	}
	a.health, err = serve(s, false, health.Config{
		Registry: &a.checks, Publisher: &a.publisher, Title: "Carillon, agent of " + a.self.Host, Routes: routes,
	})
	if err != nil {
		return err
	}
	a.push, err = metric.NewPush(ctx, metric.PushConfig{
		Gatherer: a.registry, Logger: s.Log, Resource: trace.Resource(ctx, trace.Config{
			Version: Version(), Host: a.self.Host, PID: a.self.PID, Rank: -1, Resource: s.Resource, Logger: s.Log,
		}),
	})
	if err != nil { // /metrics still has them
		s.Log.Warn("metrics are not sent", "error", err)
	}
	return nil
}

// pushMetrics sends the metrics of a job before the job is dropped.
func (a *Agent) pushMetrics(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	if err := a.push.Flush(ctx); err != nil {
		a.settings.Log.Warn("the last metrics of a job were not sent", "error", err)
	}
}

// endEvents ends the stream of events, once its clients have received all events.
func (a *Agent) endEvents(ctx context.Context) {
	if a.events == nil {
		return
	}
	a.events.Close()
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	a.streaming.drain(ctx)
}

// Waits tells whether another agent follows a job that this agent would follow.
func (a *Agent) Waits() bool {
	a.scanning.Lock()
	defer a.scanning.Unlock()
	return len(a.others) > 0
}

// URL is where the health endpoint listens; empty when it is switched off.
func (a *Agent) URL() string { return a.health.URL() }

// Ending notes that the jobs were told to end, as by a signal. Ends of their processes in the next minute are expected:
// no verdict opens.
func (a *Agent) Ending() {
	a.ending.Store(true)
	for _, j := range a.list() {
		j.ras.ending()
	}
}

// await waits briefly for the ends of processes that were told to end, which may take longer than their launcher.
func (a *Agent) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dyingTime)
	defer cancel()
	for _, j := range a.list() {
		j.keeper.Await(ctx)
	}
}

// Stop reads and exports what the processes have done so far, and ends the agent. It is bounded by ctx, and by 15
// seconds. A second Stop does nothing.
func (a *Agent) Stop(ctx context.Context) (err error) {
	a.stop.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		a.work.stop()
		a.Scan() // processes that began and ended a moment ago
		if a.ending.Load() {
			a.await(ctx)
		}
		var errs []error
		for _, j := range a.list() {
			errs = append(errs, j.close(ctx))
		}
		for dir := range a.following {
			a.letGo(dir)
		}
		if err := a.push.Close(ctx); err != nil {
			a.settings.Log.Warn("the last metrics were not sent", "error", err)
		}
		a.endEvents(ctx)
		errs = append(errs, a.health.Stop(ctx))
		err = errors.Join(append(errs, a.settings.sink.Close(ctx))...)
	})
	return err
}

// list returns the jobs, sorted by folder.
func (a *Agent) list() []*keptJob {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.SortedFunc(maps.Values(a.jobs), func(x, y *keptJob) int { return cmp.Compare(x.dir, y.dir) })
}

// jobsReady fails with the conditions that make processes of its jobs not ready, as at their own endpoints.
func (a *Agent) jobsReady(context.Context) error {
	var errs []error
	for _, j := range a.list() {
		for _, c := range j.conditions.List() {
			if c.NotReady {
				errs = append(errs, fmt.Errorf("job %s: %s", j.name, c))
			}
		}
	}
	return errors.Join(errs...)
}

// snapshot is what is known about all jobs, for clients that don't ask for one process.
func (a *Agent) snapshot() *health.Snapshot {
	s := &health.Snapshot{Time: time.Now(), Rank: -1, Host: a.self.Host, PID: a.self.PID}
	jobs := a.list()
	for _, j := range jobs {
		s.Ranks = append(s.Ranks, j.ras.Ranks()...)
		s.Verdicts = append(s.Verdicts, j.ras.Verdicts()...)
		s.Conditions = append(s.Conditions, conditionsOf(j.name, j.conditions)...)
		if len(jobs) == 1 {
			s.Job, s.Size = j.name, j.size
		}
		for _, n := range j.all() {
			s.Comms = append(s.Comms, n.publisher.Last().Comms...)
		}
	}
	if !a.settings.RAS.On {
		s.Unwatched = a.settings.unwatched()
	}
	return s
}

// mountedAt is the path of a process's endpoint, below the agent's endpoint.
func mountedAt(dir, member string) string {
	return jobsPath + url.PathEscape(filepath.Base(dir)) + "/" + url.PathEscape(member)
}

// ServeHTTP answers below jobsPath: with the endpoint of a process, or with the list of processes.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, j := range a.list() {
		for _, n := range j.all() {
			at := mountedAt(j.dir, n.telemetry.self.Name)
			switch rest, below := strings.CutPrefix(r.URL.EscapedPath(), at); {
			case below && rest == "":
				http.Redirect(w, r, filepath.Base(at)+"/", http.StatusMovedPermanently)
				return
			case below && rest[0] == '/':
				http.StripPrefix(at, n.health).ServeHTTP(w, r)
				return
			}
		}
	}
	if r.URL.Path != jobsPath {
		http.NotFound(w, r)
		return
	}
	type entry struct{ Path, Name string }
	var entries []entry
	for _, j := range a.list() {
		for _, n := range j.all() {
			entries = append(entries, entry{
				".." + mountedAt(j.dir, n.telemetry.self.Name) + "/", fmt.Sprintf("%s, %s", j.name, n.telemetry.self),
			})
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	_ = processesPage.Execute(w, entries) // the client went away
}

var processesPage = template.Must(template.New("processes").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Carillon: processes</title><h1>Processes</h1><ul>
{{range .}}<li><a href="{{.Path}}">{{.Name}}</a></li>
{{else}}<li>no process is followed</li>
{{end}}</ul></html>
`))

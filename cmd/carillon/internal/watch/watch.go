package watch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Intervals.
const (
	tick      = time.Second     // between reads of the tapes, and updates of the screen
	pollAny   = 2 * time.Second // between requests; shorter if that is needed to ask each rank once within pollAll
	pollAll   = time.Minute
	pollEvent = time.Second      // from an event to the next request: processes publish snapshots once a second
	lostFor   = 10 * time.Second // a job without tapes here has ended if no process answered or streamed for so long
	awayFor   = 5 * time.Minute  // between two requests to an unreachable process of another host
)

// Config is the job to watch, and how to show it.
type Config struct {
	Client *endpoint.Client
	// Job is the job, whose tapes are read every second. If it is nil, Targets are watched.
	Job     *find.Job
	Targets []endpoint.Target
	// Display is required.
	Display Display
	// Least is the lowest severity of the events that are shown.
	Least bus.Severity
}

// Display shows a job. Its methods are called one at a time.
type Display interface {
	// Event shows an event.
	Event(ev *bus.Event)
	// State shows the state of the job; nil: nothing is known yet. note is the problem with the watching, if any.
	State(r *view.Report, note string)
	// Redraw receives when State must be called again at once, and Quit when the user quits. Either may be nil.
	Redraw() <-chan struct{}
	Quit() <-chan struct{}
}

// End tells why the watching ended.
type End struct {
	// Text is a sentence for a person; empty if the user quit or the time was over after a process had answered.
	Text string
	// Job tells whether the job has ended.
	Job bool
	// Heard tells whether any process ever answered.
	Heard bool
}

// watcher watches one job. Its fields belong to the goroutine of Run.
type watcher struct {
	cfg     Config
	view    view.View
	job     *find.Job
	stream  stream
	poller  *poller
	history history

	running sync.WaitGroup // the stream and the requests
	events  chan message
	answers chan answer

	last     map[endpoint.Target]*health.Snapshot
	own      []endpoint.Target             // those of Config.Targets, or of this host
	away     map[endpoint.Target]time.Time // the last failures of endpoints of other hosts
	heard    time.Time                     // the last answer; zero: none
	listened time.Time                     // when a stream was last open, even if silent
	began    time.Time
	over     bool                     // no process ran at the last look
	silent   map[endpoint.Target]bool // the targets that didn't answer the last request
	problem  string
}

// Run watches until the job has ended, the user quits, or ctx ends. It leaves no goroutine behind.
func Run(ctx context.Context, cfg Config) End {
	w := newWatcher(cfg)
	if w.job != nil {
		w.view.Job(w.job.Name)
	}
	ctx, cancel := context.WithCancel(ctx)
	end := w.loop(ctx)
	cancel()
	w.running.Wait()
	w.drain() // show the events before the end
	if end.Job {
		w.show()
	}
	if end.Heard = !w.heard.IsZero(); !end.Heard {
		end.Text = cmp.Or(end.Text, w.silence(), "no process answers")
	}
	return end
}

func newWatcher(cfg Config) *watcher {
	return &watcher{
		cfg: cfg, job: cfg.Job, poller: newPoller(), events: make(chan message, 256), answers: make(chan answer),
		last: map[endpoint.Target]*health.Snapshot{}, away: map[endpoint.Target]time.Time{},
		silent: map[endpoint.Target]bool{}, began: time.Now(),
	}
}

func (w *watcher) drain() {
	for {
		select {
		case h := <-w.events:
			w.hear(h)
		default:
			return
		}
	}
}

func (w *watcher) loop(ctx context.Context) End {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	w.look()
	for {
		now := time.Now()
		w.listen(ctx, now)
		wait := w.ask(ctx, now)
		if retry := w.stream.retry.Sub(now); retry > 0 {
			wait = min(wait, retry)
		}
		w.show()
		select {
		case <-ctx.Done():
			return End{}
		case <-w.cfg.Display.Quit():
			return End{}
		case h := <-w.events:
			w.hear(h)
			w.drain() // a new stream begins with many events
		case a := <-w.answers:
			w.answer(a)
		case <-ticker.C:
			if end, over := w.look(); over {
				return end
			}
		case <-w.cfg.Display.Redraw():
		case <-time.After(wait):
		}
	}
}

// look finds the running processes, and tells whether the job has ended.
func (w *watcher) look() (End, bool) {
	if w.job == nil {
		w.reach(w.cfg.Targets)
		if w.stream.open {
			w.listened = time.Now()
		}
		for _, at := range []time.Time{w.began, w.heard, w.listened} {
			if time.Since(at) < lostFor {
				return End{}, false
			}
		}
		return End{
			Job: true, Text: "no process answers any more: the job has ended, or is unreachable. " + w.problem,
		}, true
	}
	job, err := find.Read(w.job.Dir)
	if err != nil {
		return End{
			Job: true, Text: fmt.Sprintf("job %s has ended, and its tapes are gone", words.Line(w.job.Name)),
		}, true
	}
	if w.job = job; !w.job.Running() {
		if w.stream.open && !w.over { // an agent may still tell what it made of the end
			w.over = true
			return End{}, false
		}
		return End{Job: true, Text: w.job.Ended()}, true
	}
	w.over = false
	w.reach(Targets(w.job))
	w.view.Tapes(Tapes(w.job))
	return End{}, false
}

// reach sets the targets of the stream. Requests also go to a few other endpoints that these name.
func (w *watcher) reach(targets []endpoint.Target) {
	w.own = targets
	others := Others(w.job, targets, w.last)
	others = slices.DeleteFunc(others[:min(len(others), maxOthers)],
		func(t endpoint.Target) bool { return time.Since(w.away[t]) < awayFor })
	asked := slices.Concat(targets, others)
	w.stream.reach(targets)
	w.poller.reach(asked)
	maps.DeleteFunc(w.last, func(t endpoint.Target, _ *health.Snapshot) bool { return !slices.Contains(asked, t) })
	maps.DeleteFunc(w.silent, func(t endpoint.Target, _ bool) bool { return !slices.Contains(asked, t) })
	maps.DeleteFunc(w.away, func(_ endpoint.Target, at time.Time) bool { return time.Since(at) >= awayFor })
}

// Targets are the endpoints of a job's processes.
func Targets(job *find.Job) []endpoint.Target {
	var targets []endpoint.Target
	for i := range job.Processes {
		if p := &job.Processes[i]; p.URL != "" {
			targets = append(targets, endpoint.Target{
				URL: find.Reachable(p.URL), Trusted: p.Own, Of: endpoint.Of(p.Rank, p.Host, p.PID),
			})
		}
	}
	return targets
}

// Tapes are the communicators on the tapes of a job's processes on this host, now.
func Tapes(job *find.Job) []view.Local {
	local := []view.Local{}
	for i := range job.Processes {
		p := &job.Processes[i]
		if !p.Running {
			continue
		}
		r, err := tape.Open(p.Tape)
		if err != nil {
			continue
		}
		if r.Liveness() == process.Alive { // another host has another clock
			now := tape.Now()
			slots := r.Slots()
			for s := range slots {
				comm := health.CommOf(&slots[s], now)
				comm.Job = job.Name
				local = append(local, view.Local{Host: p.Host, PID: p.PID, Comm: comm})
			}
		}
		_ = r.Close() // only read from
	}
	return local
}

func (w *watcher) hear(h message) {
	ev := h.event
	switch {
	case h.opened:
		w.stream.open, w.stream.why = true, ""
	case h.err != nil:
		w.stream.ended(h.err, time.Now())
	default:
		w.heard = time.Now()
		if ev.ID != "" && !ev.Notice() {
			w.stream.after = ev.ID
		}
		if !w.history.news(ev) {
			return
		}
		w.poller.heard(w.heard)
		if w.job != nil { // the name is known; only an agent that is watched by its URL may report several jobs
			ev.Job = ""
		}
		if ev.Severity >= w.cfg.Least {
			w.cfg.Display.Event(ev)
		}
	}
}

func (w *watcher) answer(a answer) {
	w.poller.done(a.from)
	if a.err == nil {
		w.heard = time.Now()
		w.last[a.from] = a.snapshot
		delete(w.silent, a.from)
		w.problem = ""
		w.view.Merge(w.heard, a.snapshot)
	} else {
		w.silent[a.from] = true
		told := w.last[a.from]
		if told != nil { // the last snapshot is shown as stale
			w.view.Unanswered(told)
		}
		if slices.Contains(w.own, a.from) {
			w.problem = a.err.Error()
			if w.job != nil {
				w.problem = cmp.Or(w.job.Silence(a.err), w.problem)
			}
		} else if told == nil { // a target that has answered before is asked again soon
			w.away[a.from] = time.Now()
		}
	}
	w.avoid()
}

// avoid keeps the stream away from processes that aren't running or didn't answer the last request: a connection to one
// would take its whole timeout.
func (w *watcher) avoid() {
	var unsound []string
	for target, s := range w.last {
		if !w.view.Sound(s) {
			unsound = append(unsound, target.URL)
		}
	}
	for target := range w.silent {
		if !w.stream.open || target != w.stream.to { // a slow process may still send events
			unsound = append(unsound, target.URL)
		}
	}
	w.stream.avoid(unsound)
}

func (w *watcher) show() {
	if w.heard.IsZero() {
		w.cfg.Display.State(nil, cmp.Or(w.silence(), "waiting for a process that answers"))
		return
	}
	w.cfg.Display.State(w.view.Report(time.Now()), w.stream.why)
}

// silence tells why no process has answered; empty if the reason is unknown.
func (w *watcher) silence() string {
	if w.job != nil && len(w.own) == 0 && time.Since(w.job.Started) >= find.TakenUpTime {
		return w.job.Silence()
	}
	return w.problem
}

package profiler

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultPatience is Config.Patience's default.
const DefaultPatience = 5 * time.Second

// queued is the number of events that may wait for a plug-in: those of some milliseconds without a core. They take 9
// MiB.
const queued = 1 << 15

// Config configures a Profiler.
type Config struct {
	Plugins  []Plugin
	Patience time.Duration // how long a call of a plug-in may take; 0 is DefaultPatience
	Log      *slog.Logger  // nil is slog.Default
	// Off, unless nil, is called when a plug-in was switched off, after that was logged.
	Off func(Status)
}

// Profiler runs the plug-ins of a process. It is safe for concurrent use; a nil Profiler has no plug-ins.
type Profiler struct {
	pid      int
	log      *slog.Logger
	off      func(Status)
	patience time.Duration
	workers  []*worker
	events   atomic.Uint64

	closing sync.Once
	quit    chan struct{} // closed by Close: the workers end when their queues are empty
	watch   sync.WaitGroup
	offs    chan *worker  // switched-off plug-ins, for the log; has room for all
	ended   chan struct{} // closed when look may end
}

// New makes a Profiler; it returns nil if there are no plug-ins. Close ends it.
func New(cfg Config) *Profiler {
	if len(cfg.Plugins) == 0 {
		return nil
	}
	p := &Profiler{
		pid: os.Getpid(), log: cmp.Or(cfg.Log, slog.Default()), off: cfg.Off,
		patience: cmp.Or(cfg.Patience, DefaultPatience), offs: make(chan *worker, len(cfg.Plugins)),
		quit: make(chan struct{}), ended: make(chan struct{}),
	}
	for _, plugin := range cfg.Plugins {
		w := &worker{
			p: p, plugin: plugin, name: nameOf(plugin), queue: make(chan record, queued), gone: make(chan struct{}),
			done: make(chan struct{}), stuck: make(chan struct{}), sessions: map[*Comm]*session{},
		}
		w.giveUp = sync.OnceFunc(func() { close(w.stuck) })
		p.workers = append(p.workers, w)
		go w.run()
	}
	p.watch.Go(p.look)
	return p
}

// Comm begins a communicator, and waits until the plug-ins have accepted or refused it: at most for the patience, and
// only once for a plug-in that does not return. It returns nil if no plug-in runs.
func (p *Profiler) Comm(ctx context.Context, info Info) *Comm {
	if p == nil {
		return nil
	}
	c := &Comm{p: p, info: info}
	waiting, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	told := make([]chan struct{}, len(p.workers))
	for i, w := range p.workers {
		told[i] = make(chan struct{})
		w.put(&record{kind: kindInit, comm: c, told: told[i]})
	}
	running := false
	for i, w := range p.workers {
		select {
		case <-told[i]:
		case <-w.gone:
		case <-waiting.Done():
			select {
			case <-told[i]: // answered meanwhile
			default:
				if ctx.Err() == nil {
					w.switchOff("it did not take a new communicator within " + p.patience.String())
				}
			}
		}
		running = running || !w.off()
	}
	if !running {
		return nil
	}
	return c
}

// Close ends the plug-ins: each gets the queued events, and the end of its communicators. Close waits until they have
// returned, at most for the patience and until ctx ends; a plug-in that has not returned by then is abandoned.
func (p *Profiler) Close(ctx context.Context) {
	if p == nil {
		return
	}
	p.closing.Do(func() {
		close(p.quit)
		defer p.watch.Wait()
		defer close(p.ended)
		ctx, cancel := context.WithTimeout(ctx, p.patience)
		defer cancel()
		for _, w := range p.workers {
			select {
			case <-w.done:
			case <-w.stuck: // it was already given up
			case <-ctx.Done():
				w.switchOff("it did not end in time")
			}
		}
	})
}

// Status is the state of a plug-in.
type Status struct {
	Name string
	Off  string // why it was switched off; empty if it is on
	Told uint64 // number of events, states and ends that it got
}

// Status returns the states of the plug-ins, in order.
func (p *Profiler) Status() []Status {
	if p == nil {
		return nil
	}
	all := make([]Status, len(p.workers))
	for i, w := range p.workers {
		all[i] = w.status()
	}
	return all
}

// look switches off plug-ins that don't return, and logs all plug-ins that were switched off.
func (p *Profiler) look() {
	tick := time.NewTicker(p.patience / 4)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			for len(p.offs) > 0 { // switched off meanwhile
				p.say(<-p.offs)
			}
			return
		case w := <-p.offs:
			p.say(w)
		case now := <-tick.C:
			for _, w := range p.workers {
				if since := w.since.Load(); since != 0 && now.Sub(begin)-time.Duration(since) > p.patience {
					w.switchOff("it has not returned from a call for " + p.patience.String())
					w.giveUp()
				}
			}
		}
	}
}

func (p *Profiler) say(w *worker) {
	p.log.Warn("the profiler plug-in was switched off; the job goes on", "plugin", w.name, "reason", *w.why.Load())
	if p.off != nil {
		p.off(w.status())
	}
}

// nameOf returns a plug-in's name, or its type if Name panics.
func nameOf(plugin Plugin) (name string) {
	defer func() {
		if recover() != nil {
			name = fmt.Sprintf("%T", plugin)
		}
	}()
	return plugin.Name()
}

// begin is the origin of the times of calls.
var begin = time.Now()

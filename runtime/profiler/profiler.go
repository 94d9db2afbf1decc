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

// DefaultPatience is how long a call of a plug-in may take where Config.Patience does not say it.
const DefaultPatience = 5 * time.Second

// queued is how many events may wait for a plug-in: what happens while it has no processor for some milliseconds. They
// take 9 MiB.
const queued = 1 << 15

// Config is what a Profiler is made of.
type Config struct {
	Plugins  []Plugin
	Patience time.Duration // how long a call of a plug-in may take; 0 is DefaultPatience
	Log      *slog.Logger  // nil is slog.Default
	// Off, if it is not nil, is called when a plug-in was switched off, after that is logged.
	Off func(Status)
}

// Profiler has the plug-ins of a process. It is safe for concurrent use; its methods may be called on nil, which has
// none.
type Profiler struct {
	pid      int
	log      *slog.Logger
	off      func(Status)
	patience time.Duration
	workers  []*worker
	events   atomic.Uint64

	// mask has what the plug-ins that are not off ask for. It is written by those that hold masking.
	mask    atomic.Uint32
	masking sync.Mutex

	closing sync.Once
	quit    chan struct{} // closed by Close: the workers end when their queues are empty
	watch   sync.WaitGroup
	offs    chan *worker  // that were switched off, for the log; it has room for all
	ended   chan struct{} // closed when the watch may end
}

// New makes a Profiler; nil where there are no plug-ins. Close ends it.
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
	}
	for _, w := range p.workers {
		go w.run()
	}
	p.watch.Go(p.look)
	return p
}

// Comm begins a communicator, and waits until the plug-ins have taken or refused it: for at most the patience, and only
// once for each plug-in that does not return. It is nil where no plug-in runs.
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
			if ctx.Err() == nil && !closed(told[i]) {
				w.switchOff("it did not take a new communicator within " + p.patience.String())
			}
		}
		running = running || !w.off()
	}
	if !running {
		return nil
	}
	return c
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Close ends the plug-ins: each is told of what was queued, and of the end of the communicators. It waits until they
// have returned, or ctx ends, or the patience; one that has not returned by then goes on, and is not waited for.
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
			case <-w.stuck: // it was given up long ago
			case <-ctx.Done():
				w.switchOff("it did not end in time")
			}
		}
	})
}

// Status is how a plug-in is.
type Status struct {
	Name string
	Off  string // why it was switched off; empty if it was not
	Told uint64 // events, states and ends that it was told of
}

// Status returns how the plug-ins are, in their order.
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

// look switches off plug-ins that don't return, and logs all that were switched off.
func (p *Profiler) look() {
	tick := time.NewTicker(p.patience / 4)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			for len(p.offs) > 0 { // of those that were while it ended
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

// nameOf is a plug-in's name, or its type if it panics.
func nameOf(plugin Plugin) (name string) {
	defer func() {
		if recover() != nil {
			name = fmt.Sprintf("%T", plugin)
		}
	}()
	return plugin.Name()
}

// begin is what the times of calls count from.
var begin = time.Now()

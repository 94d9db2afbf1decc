package node

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/postmortem"
)

// leftovers sends the spans that dead processes of this host left on their tapes, at the start and whenever another
// process of the job has died: a process that ends by os.Exit, a panic or SIGKILL can't send its last spans itself. A
// nil leftovers does nothing.
type leftovers struct {
	opts   postmortem.ExportOptions
	task   task
	news   chan struct{} // a process died
	ending chan struct{} // closed: no new round begins
}

// settleDown is how long after a process's death another one waits before it sends the dead one's spans: most processes
// end because of the death, and if one ended while sending, others would send the same spans again.
const settleDown = 2 * time.Second

// newLeftovers starts sending, unless the program itself decides where spans go. It sends from the tapes of all jobs:
// the next process here may be of another job.
func newLeftovers(s *settings, t *Telemetry) *leftovers {
	if t.trace == nil || !t.trace.Exports() || t.exported.OwnExport {
		return nil
	}
	l := &leftovers{
		opts: postmortem.ExportOptions{Algorithm: t.exported.AlgorithmName, Logger: s.Log},
		news: make(chan struct{}, 1), ending: make(chan struct{}),
	}
	jobs := filepath.Dir(filepath.Dir(t.tape.Path()))
	l.task.start(func(ctx context.Context) {
		for {
			l.send(ctx, jobs)
			select {
			case <-l.news:
			case <-l.ending:
				return
			}
			select {
			case <-time.After(settleDown):
			case <-l.ending:
				return
			}
		}
	})
	return l
}

// send sends the spans left on the tapes below a folder, until ctx ends.
func (l *leftovers) send(ctx context.Context, dir string) {
	sent, err := postmortem.SendLeft(ctx, dir, l.opts)
	if err = cmp.Or(err, sent.Why); err != nil && ctx.Err() == nil {
		l.opts.Logger.Warn("spans that dead processes left on their tapes were not sent", "error", err)
	}
}

// member takes what happened to a process of the job.
func (l *leftovers) member(e mesh.Event) {
	if l == nil || e.State != mesh.Dead && e.Cause != mesh.CauseExit {
		return
	}
	select {
	case l.news <- struct{}{}:
	default: // the next round finds it
	}
}

// end waits, bounded by ctx, until the spans in transit have been sent; others will send the rest.
func (l *leftovers) end(ctx context.Context) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	close(l.ending)
	l.task.drain(ctx)
}

// rest sends the spans left on the tapes of a job that an agent has followed to its end, after all spans that the agent
// made from them: the agent is the last process that knows where the spans go.
func (l *leftovers) rest(ctx context.Context, dir string) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	l.send(ctx, dir)
}

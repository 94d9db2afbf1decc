package jobsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Do does something in the process, when it runs; never if it has ended.
func (p *Process) Do(f func()) {
	switch p.State {
	case Running:
		f()
	case Stopped:
		p.pending = append(p.pending, f)
	case Dead, Departed:
	}
}

// later is Do in a while.
func (p *Process) later(d time.Duration, f func()) { p.job.After(d, func() { p.Do(f) }) }

// Stop stops the process, as SIGSTOP does.
func (p *Process) Stop() {
	if p.State == Running {
		p.setState(Stopped, process.Exit{})
	}
}

func (p *Process) setState(s State, how process.Exit) {
	p.State, p.Since, p.How = s, p.job.now, how
	if p.Changed != nil {
		p.Changed()
	}
}

// Continue lets a stopped process run again.
func (p *Process) Continue() {
	if p.State != Stopped {
		return
	}
	p.setState(Running, process.Exit{})
	pending := p.pending
	p.pending = nil
	for _, f := range pending {
		p.Do(f)
	}
}

// Kill ends the process at once, without a message to others. how is what its parent sees.
func (p *Process) Kill(how process.Exit) {
	if p.State.Ended() {
		return
	}
	p.setState(Dead, how)
	for _, r := range p.Ranks {
		for _, part := range r.order {
			if part.ended {
				continue
			}
			p.job.After(deathTime, func() {
				rank := part.slot.Rank
				part.comm.lose(rank, &Fault{
					Code: lifecycle.CodeRankDead, Peer: rank,
					Text: fmt.Sprintf("rank %d of %s died", rank, part.comm.info.Name),
				})
			})
		}
	}
}

// leave ends the process in order, with an exit code: its communicators that are left are aborted.
func (p *Process) leave(code int) {
	if p.State.Ended() {
		return
	}
	for _, r := range p.Ranks {
		for _, part := range slices.Backward(r.order) {
			part.abort("the runtime was closed")
		}
	}
	p.setState(Departed, exited(code))
}

// Reach tells whether the network is whole between two processes.
func (j *Job) Reach(a, b *Process) bool {
	return a.Host == b.Host || !j.cut[a.Host] && !j.cut[b.Host]
}

// keepalive is after how long without a sign of life another host is given up.
const keepalive = 10 * time.Second

// Cut parts a host from all others, or joins it again. What waits for the other side for keepalive fails.
func (j *Job) Cut(host string, apart bool) {
	j.cut[host] = apart
	if !apart {
		held := j.held
		j.held = nil
		for _, m := range held {
			j.After(j.Latency, m.complete)
		}
		return
	}
	j.After(keepalive, func() {
		if !j.cut[host] || j.Blind {
			return
		}
		for _, r := range j.Ranks {
			for _, part := range r.order {
				j.timeOut(part)
			}
		}
	})
}

// timeOut fails what the part waits for from beyond a cut.
func (j *Job) timeOut(part *Part) {
	if len(part.queue) == 0 || !part.queue[0].started || j.now-part.queue[0].start < int64(keepalive)/2 {
		return
	}
	o := part.queue[0]
	for _, other := range part.comm.parts {
		if other != nil && !j.Reach(part.rank.Process, other.rank.Process) && o.needs(other.slot.Rank) {
			part.rank.Process.Do(func() {
				o.fail(&Fault{
					Code: lifecycle.CodeUnreachable, Peer: other.slot.Rank,
					Text: fmt.Sprintf("rank %d stopped answering", other.slot.Rank),
				})
			})
			return
		}
	}
}

// destroy ends the communicator on this rank when the operations before have ended; done is called then.
func (part *Part) destroy(done func()) {
	if part.ended {
		done()
		return
	}
	start := part.rank.Process.job.now
	part.begin(tape.ActDestroy, lifecycle.CallDestroy, 0)
	part.whenIdle(func() {
		part.over(lifecycle.StateDestroyed)
		part.end(tape.ActDestroy, lifecycle.CallDestroy, 0, start, nil)
		done()
	})
}

// whenIdle calls f when no operation is left.
func (part *Part) whenIdle(f func()) {
	if len(part.queue) == 0 {
		f()
		return
	}
	last := part.queue[len(part.queue)-1]
	done := last.done
	last.done = func(fault *Fault) {
		if done != nil {
			done(fault)
		}
		part.whenIdle(f)
	}
}

// over takes the communicator off the rank; the others learn it when they need the rank.
func (part *Part) over(state lifecycle.State) {
	part.ended, part.slot.State = true, state
	rank, j := part.slot.Rank, part.rank.Process.job
	text := fmt.Sprintf("rank %d ended %s", rank, part.comm.info.Name)
	f := &Fault{Code: lifecycle.CodePeerAborted, Peer: rank, Text: text}
	j.After(noticeTime, func() { part.comm.lose(rank, f) })
}

// abort ends the communicator on this rank at once.
func (part *Part) abort(cause string) {
	if part.ended {
		return
	}
	start := part.rank.Process.job.now
	part.begin(tape.ActAbort, lifecycle.CallAbort, 0)
	f := &Fault{Code: lifecycle.CodeAborted, Peer: -1, Text: cause}
	if part.fault == nil {
		part.notify(f)
	}
	part.over(lifecycle.StateAborted)
	for _, o := range slices.Clone(part.queue) {
		if o.started && !o.ended {
			for _, m := range o.meetings {
				m.came = slices.DeleteFunc(m.came, func(c *operation) bool { return c == o })
			}
			o.record(nil, f.Code)
		}
		part.pop(o, f)
	}
	part.end(tape.ActAbort, lifecycle.CallAbort, 0, start, nil)
}

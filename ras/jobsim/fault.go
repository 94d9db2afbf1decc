package jobsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Do calls f in the process: now if it runs, on SIGCONT if it is stopped, never if it has ended.
func (p *Process) Do(f func()) {
	switch p.State {
	case Running:
		f()
	case Stopped:
		p.pending = append(p.pending, f)
	case Dead, Departed:
	}
}

// later is Do after d.
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

// Kill ends the process without closing its runtime. how is what its parent sees.
func (p *Process) Kill(how process.Exit) {
	if p.State.Ended() {
		return
	}
	p.setState(Dead, how)
	for _, r := range p.Ranks {
		for _, member := range r.order {
			if member.ended {
				continue
			}
			p.job.After(deathTime, func() {
				rank := member.slot.Rank
				member.comm.lose(rank, &Fault{
					Code: lifecycle.CodeRankDead, Peer: rank,
					Text: fmt.Sprintf("rank %d of %s died", rank, member.comm.info.Name),
				})
			})
		}
	}
}

// GiveUp cancels the contexts of the rank's calls.
func (r *Rank) GiveUp() {
	for _, member := range r.order {
		if o := member.running(); o != nil {
			o.fail(&Fault{
				Code: lifecycle.CodeCanceled, Peer: int(o.waitsFor()),
				Text: fmt.Sprintf("%s %d on %s: its context was canceled", o.sig.Call, o.seq, member.comm.info.Name),
			})
		}
	}
}

// leave closes the runtime, which aborts the communicators that are left, and exits with the code.
func (p *Process) leave(code int) {
	if p.State.Ended() {
		return
	}
	p.closes = true
	for _, r := range p.Ranks {
		for _, member := range slices.Backward(r.order) {
			member.abort("the runtime was closed")
		}
	}
	p.setState(Departed, exited(code))
}

// Reach tells whether the network connects two processes.
func (j *Job) Reach(a, b *Process) bool {
	return a.Host == b.Host || !j.cut[a.Host] && !j.cut[b.Host]
}

// keepalive is the silence after which another host counts as unreachable.
const keepalive = 10 * time.Second

// Cut disconnects a host from all others, or connects it again. An operation that waits for the other side fails after
// keepalive.
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
			for _, member := range r.order {
				j.timeOut(member)
			}
		}
	})
}

// timeOut fails the member's running operation if it needs a rank beyond a cut.
func (j *Job) timeOut(member *membership) {
	o := member.running()
	if o == nil || j.now-o.start < int64(keepalive)/2 {
		return
	}
	for _, other := range member.comm.members {
		if other != nil && !j.Reach(member.rank.Process, other.rank.Process) && o.needs(other.slot.Rank) {
			member.rank.Process.Do(func() {
				o.fail(&Fault{
					Code: lifecycle.CodeUnreachable, Peer: other.slot.Rank,
					Text: fmt.Sprintf("rank %d stopped answering", other.slot.Rank),
				})
			})
			return
		}
	}
}

// destroy destroys the communicator on this rank once its operations have ended, and then calls done.
func (member *membership) destroy(done func()) {
	if member.ended {
		done()
		return
	}
	end := member.begin(tape.ActDestroy, lifecycle.CallDestroy, 0)
	member.whenIdle(func() {
		member.leave(lifecycle.StateDestroyed)
		end(nil)
		done()
	})
}

// whenIdle calls f once no operation is in flight.
func (member *membership) whenIdle(f func()) {
	if len(member.queue) == 0 {
		f()
		return
	}
	last := member.queue[len(member.queue)-1]
	done := last.done
	last.done = func(fault *Fault) {
		if done != nil {
			done(fault)
		}
		member.whenIdle(f)
	}
}

// leave ends the membership; operations of other ranks that need this one fail.
func (member *membership) leave(state lifecycle.State) {
	member.ended, member.slot.State = true, state
	rank, j := member.slot.Rank, member.rank.Process.job
	text := fmt.Sprintf("rank %d ended %s", rank, member.comm.info.Name)
	f := &Fault{Code: lifecycle.CodePeerAborted, Peer: rank, Text: text}
	j.After(noticeTime, func() { member.comm.lose(rank, f) })
}

// abort aborts the communicator on this rank.
func (member *membership) abort(cause string) {
	if member.ended {
		return
	}
	end := member.begin(tape.ActAbort, lifecycle.CallAbort, 0)
	f := &Fault{Code: lifecycle.CodeAborted, Peer: -1, Text: cause}
	if member.fault == nil {
		member.notify(f)
	}
	member.leave(lifecycle.StateAborted)
	for _, o := range slices.Clone(member.queue) {
		if o.started && !o.ended {
			for _, m := range o.meetings {
				m.entered = slices.DeleteFunc(m.entered, func(other *operation) bool { return other == o })
			}
			o.record(nil, f.Code)
		}
		member.pop(o, f)
	}
	end(nil)
}

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/alertmanager"
	"github.com/carillon-rt/carillon/ras/bus/otlplog"
	"github.com/carillon-rt/carillon/ras/bus/sse"
	"github.com/carillon-rt/carillon/ras/bus/webhook"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// Bounds on the wait for a verdict on a fresh failure, on pushing the last events, and on joining others.
const (
	settleTimeout = 2500 * time.Millisecond // a look takes 2 s if a process does not answer
	pushTimeout   = 2 * time.Second
	joinTimeout   = 30 * time.Second
)

// JobRAS is a process's part in its job's RAS: the mesh, the agent, and the sinks of their events. A nil JobRAS is RAS
// switched off: its methods do nothing.
type JobRAS struct {
	settings *settings
	self     mesh.Member
	own      *Telemetry // of this process, from start on; nil if it speaks for others
	job      *keptJob   // of the processes that this one speaks for; nil: only for itself
	agent    *agent.Agent
	config   mesh.Config // zero if the process is the whole job
	met      meeting     // with a job: how it meets others
	mesh     atomic.Pointer[mesh.Mesh]
	reading  sync.Mutex // held while this process's tape is read

	local   *bus.Bus // all that this process knows
	outward *bus.Bus // what this process tells others
	stream  *sse.Handler
	sinks   []bus.Sink // of outward, and the observers

	stall *health.Warnable // the job hangs, or is slow
	shown map[string]bool  // the verdicts that are conditions now
	// blamed are the culprits of the open verdicts in the log, by event key; only its sink uses it.
	blamed map[string]string

	pending   pendingContacts
	unseed    func() error // removes the seed; nil if there is none
	leftovers *leftovers
	running   task // the agent, and the goroutines that meet others
	pushing   task // to the sinks
	leaving   sync.Once
}

// jobStalled is the condition of an open verdict.
const jobStalled = "job_stalled"

// newRAS makes the process's part; nil when it is switched off.
func newRAS(s *settings, w *tape.Writer, conditions *health.Conditions) (r *JobRAS, err error) {
	if text := s.ignored(); text != "" {
		s.Log.Warn(text, semconv.LogSubsystem, semconv.SubsystemRAS)
	}
	if s.unwatched() != "" {
		return nil, nil
	}
	r = &JobRAS{settings: s, blamed: map[string]string{}}
	if s.World.Size > 1 && !process.Visible() {
		s.Log.Warn("RAS does not see whether processes of this host have stopped, or how they ended: there is no "+
			"/proc to tell; and shared memory between them is not used", semconv.LogSubsystem, semconv.SubsystemRAS)
	}
	if r.self, err = mesh.Self(s.World.Rank, s.World.Size); err != nil {
		return nil, fmt.Errorf("RAS: %w", err)
	}
	if s.World.Size > 1 {
		if r.config, err = s.meshConfig(r.self); err != nil {
			return nil, fmt.Errorf("RAS: %w (CARILLON_RAS=off does without)", err)
		}
	}
	dir := filepath.Dir(w.Path())
	return r, r.open(conditions, r.note, agent.Config{
		Local: agent.FromTapes(dir, s.limits(), tape.Now), Launched: agent.FromLedger(dir, r.self),
	})
}

// newKeptRAS makes the part of an Agent, which speaks for the processes of a job; meetAgents makes it meet others.
func newKeptRAS(s *settings, j *keptJob) (*JobRAS, error) {
	self := j.agent.self
	r := &JobRAS{settings: s, self: self, job: j, blamed: map[string]string{}}
	own := verdict.Note{Member: self.Name, Host: self.Host, PID: self.PID, Rank: self.Rank}
	return r, r.open(j.conditions, func() verdict.Note { return own }, agent.Config{
		Kept: j.keeper.Members, Local: j.note, Others: j.nccl.notes,
	})
}

// open makes the agent from cfg, and the sinks of its events.
func (r *JobRAS) open(conditions *health.Conditions, note func() verdict.Note, cfg agent.Config) (err error) {
	cfg.Stuck, cfg.HeldUp, cfg.Event, cfg.Open = r.stuck, r.heldUp, r.event, r.opened
	r.agent = agent.New(r.self, note, cfg)
	if r.config.Self.Name != "" {
		r.config.Handler, r.config.LocalNote, r.config.OnEvent = r.agent.Handle, r.agent.LocalNote, r.member
		if err := r.config.Validate(); err != nil {
			return err
		}
	}
	r.stall, err = conditions.Declare(health.Declaration{Code: jobStalled, Title: "the job is held up", NotReady: true})
	if err != nil {
		return err
	}
	return r.makeSinks()
}

// makeSinks makes both buses and their subscribers.
func (r *JobRAS) makeSinks() error {
	s := r.settings
	cfg := bus.Config{Source: fmt.Sprintf("/jobs/%s/ranks/%d", s.World.Job, s.World.Rank), Job: s.World.Job}
	if r.job != nil {
		cfg.Source = fmt.Sprintf("/jobs/%s/agents/%s", s.World.Job, r.self.Name)
	}
	r.local, r.outward = bus.New(cfg), bus.New(cfg)
	r.stream = sse.New(r.local)
	news := bus.Filter{Least: bus.Warning}
	push := bus.SinkConfig{Bus: r.outward, Filter: news, Logger: s.Log}
	var errs []error
	add := func(sink bus.Sink, err error) {
		errs = append(errs, err)
		if err == nil {
			r.sinks = append(r.sinks, sink)
		}
	}
	for i, url := range s.RAS.Webhooks {
		name := "webhook"
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
		}
		add(webhook.New(webhook.Config{SinkConfig: push, Name: name, URL: url, Secrets: s.RAS.WebhookSecrets}))
	}
	if len(s.RAS.Alertmanagers) > 0 {
		add(alertmanager.New(alertmanager.Config{SinkConfig: push, URLs: s.RAS.Alertmanagers}))
	}
	if logger := s.sink.Collector(); logger != nil {
		add(otlplog.New(r.outward, bus.Filter{}, logger), nil)
	}
	add(bus.NewSink(r.outward, "log", news, r.logEvent), nil)
	if sink := listener(r.local, s.Observers); sink != nil {
		add(sink, nil)
	}
	return errors.Join(errs...)
}

// start joins the job's RAS, without waiting for another process. own is the telemetry of this process if it speaks for
// itself, and url its health endpoint, empty if it has none. left hears of the deaths of other processes.
func (r *JobRAS) start(own *Telemetry, url string, left *leftovers) {
	if r == nil {
		return
	}
	r.own, r.leftovers = own, left
	r.config.Self.Health = r.reachable(url)
	var push []func(context.Context)
	for _, sink := range append([]bus.Sink{r.stream}, r.sinks...) {
		push = append(push, func(ctx context.Context) {
			if err := sink.Run(ctx); err != nil {
				r.settings.Log.Warn("events are not pushed any more", "sink", sink.Name(), "error", err)
			}
		})
	}
	r.pushing.start(push...)
	<-r.stream.Begun() // clients of the endpoint are let in once the process has started
	var m *mesh.Mesh
	if r.config.Self.Name != "" {
		var err error
		if m, err = mesh.Start(r.config); err != nil {
			// A job runs without RAS, too.
			r.settings.Log.Warn("RAS sees this process alone (CARILLON_RAS_ADDR chooses another address)", "error", err)
		}
	}
	r.running.start()
	if m != nil {
		r.mesh.Store(m)
		r.meet(m)
	}
	r.running.also(func(ctx context.Context) { r.agent.Run(ctx, m) })
}

// member takes an event of the mesh.
func (r *JobRAS) member(e mesh.Event) {
	r.leftovers.member(e)
	r.agent.Member(e)
}

// stop ends the process's part: a failure of a moment ago is still explained, pending events are still pushed, and the
// others are told that this process leaves. It is bounded by ctx, and by some seconds.
func (r *JobRAS) stop(ctx context.Context) {
	if r == nil || r.running.ctx == nil { // it was never started
		return
	}
	settled, cancel := context.WithTimeout(ctx, settleTimeout)
	r.agent.Settle(settled)
	cancel()
	r.announceEnd(ctx)
}

// announceEnd tells the others that this process ends cleanly, and pushes the events so far.
func (r *JobRAS) announceEnd(ctx context.Context) {
	if r == nil {
		return
	}
	r.leaving.Do(func() {
		if r.unseed != nil {
			_ = r.unseed() // if that fails, a process that finds the file removes it
		}
		r.running.stop()
		if m := r.mesh.Load(); m != nil {
			if err := m.Close(); err != nil && !errors.Is(err, mesh.ErrClosed) {
				r.settings.Log.Debug("the mesh did not end in order", "error", err)
			}
		}
		r.outward.Close()
		r.local.Close()
		ctx, cancel := context.WithTimeout(ctx, pushTimeout)
		defer cancel()
		r.pushing.drain(ctx)
	})
}

// looks yields the last look for stalls at each process that this one speaks for.
func (r *JobRAS) looks(yield func(*seen) bool) {
	if r.job == nil {
		yield(r.own.seen.Load())
		return
	}
	for _, p := range r.job.all() {
		if !yield(p.telemetry.seen.Load()) {
			return
		}
	}
}

// stuck returns the communicators in which a call stalls.
func (r *JobRAS) stuck() (all []lifecycle.CommID) {
	for s := range r.looks {
		for _, c := range s.stuck {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// heldUp tells whether operations repeatedly wait for one rank, or may.
func (r *JobRAS) heldUp() bool {
	for s := range r.looks {
		if s.heldUp {
			return true
		}
	}
	return false
}

// ending is called when the process, or its job, was told to end.
func (r *JobRAS) ending() {
	if r != nil {
		r.agent.Ending()
	}
}

// note is this process's note on itself.
func (r *JobRAS) note() verdict.Note {
	r.reading.Lock()
	defer r.reading.Unlock()
	return r.own.note(r.own.devices())
}

// event takes an event of the agent.
func (r *JobRAS) event(ev bus.Event, outward bool) {
	to := []*bus.Bus{r.local}
	if outward {
		to = append(to, r.outward)
	}
	if r.job != nil {
		ev.Job = r.settings.World.Job
		to = append(to, r.job.agent.events)
	}
	for _, b := range to {
		if err := b.Publish(ev); err != nil && !errors.Is(err, bus.ErrClosed) {
			r.settings.Log.Warn("an event was not published", "type", ev.Type, "error", err)
		}
	}
}

// opened makes the open verdicts conditions of this process. The agent calls it, one at a time.
func (r *JobRAS) opened(open []verdict.Verdict) {
	before := r.shown
	r.shown = make(map[string]bool, len(open))
	for i := range open {
		id, text := open[i].ID, open[i].Text
		r.stall.Set(health.Finding{
			Subject: id, Text: text.Ageless(), Severity: health.SeverityOf(&open[i]),
			TextAfter: func(d time.Duration) string { return text.After(d).String() },
		})
		r.shown[id] = true
		delete(before, id)
	}
	for id := range before {
		r.stall.Clear(id)
	}
	if r.job != nil {
		r.job.told(open)
	}
}

// Ranks returns the job's known processes.
func (r *JobRAS) Ranks() []health.Rank {
	if r == nil {
		return nil
	}
	members := r.members()
	ranks := make([]health.Rank, 0, len(members))
	for _, s := range members {
		rank := health.Rank{
			Job: r.settings.World.Job, Rank: s.Member.Rank, State: s.State.String(), Since: s.Since,
			Member: s.Member.Name, Host: s.Member.Host, PID: s.Member.PID, URL: s.Member.Health,
		}
		if rank.Rank < 0 && r.job != nil {
			rank.Rank = r.job.rankOf(s.Member.Name)
		}
		switch {
		case s.Exit.Known:
			rank.Text = s.Exit.String()
		case s.State != mesh.Alive:
			rank.Text = s.Cause.String()
		}
		ranks = append(ranks, rank)
	}
	return ranks
}

// members are the job's processes.
func (r *JobRAS) members() []mesh.Status {
	m := r.mesh.Load()
	switch {
	case r.job != nil:
		return r.agent.Members()
	case m != nil:
		return m.Members()
	default:
		return []mesh.Status{{Member: r.self}}
	}
}

// Verdicts are the open verdicts.
func (r *JobRAS) Verdicts() []health.Verdict {
	if r == nil {
		return nil
	}
	open := r.agent.Open()
	verdicts := make([]health.Verdict, 0, len(open))
	for _, o := range open {
		verdicts = append(verdicts, health.Verdict{
			Job: r.settings.World.Job, ID: o.ID, Since: o.Since, Verdict: o.Verdict,
		})
	}
	return verdicts
}

// Finding is what is known about why an operation of a communicator stalls, for its span.
func (r *JobRAS) Finding(comm lifecycle.CommID, seq uint64) (trace.Finding, bool) {
	if r == nil {
		return trace.Finding{}, false
	}
	here := func(w verdict.Wait) bool { return w.Comm == comm && w.Seq == seq }
	for _, o := range r.agent.Open() {
		if (o.Comm != comm || o.Seq != seq) && !slices.ContainsFunc(o.Victims, here) {
			continue
		}
		f := trace.Finding{Rank: -1, Reason: o.Reason.String(), Text: o.Text.String()}
		if len(o.Culprits) == 1 && o.Comm == comm {
			f.Rank = o.Culprits[0].Comm
		}
		return f, true
	}
	return trace.Finding{}, false
}

// logEvent is the sink into the log. Only a change of a verdict's culprits is as important as the verdict: whoever read
// of others must not go on looking there.
func (r *JobRAS) logEvent(ctx context.Context, ev *bus.Event) error {
	level := slog.LevelWarn
	before, known := r.blamed[ev.Key]
	if ev.Stage == bus.Changed && (!known || before == ev.Rank) {
		level = slog.LevelInfo
	}
	switch ev.Stage {
	case bus.Opened, bus.Changed:
		r.blamed[ev.Key] = ev.Rank
	case bus.Closed:
		delete(r.blamed, ev.Key)
	default: // no condition
	}
	log := slog.New(r.settings.sink.Local().Handler().WithAttrs(r.settings.attrs))
	log.Log(ctx, level, ev.Text, semconv.LogSubsystem, semconv.SubsystemRAS,
		"reason", ev.Reason, "culprit", ev.Rank, "type", ev.Type)
	return nil
}

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// keptJob is one job of an Agent: its RAS, and its processes.
type keptJob struct {
	agent      *Agent
	dir        string // of its tapes
	name       string
	size       int
	run        lifecycle.Run
	conditions *health.Conditions
	keeper     *agent.Keeper
	ras        *JobRAS     // nil: switched off
	nccl       *ncclPoller // nil: switched off
	alone      bool        // it was logged why the agents of its other machines can't be met
	leftovers  *leftovers
	looked     map[string][]string // who was examined for each open verdict; this and the next: of Config.Open alone
	named      []string            // the open verdicts, by ID
	hangs      atomic.Bool         // there are some
	news       chan struct{}       // of capacity one: they changed
	noting     task                // notes in the ledger that the job hangs
	running    task                // looks for stacks, and waits for the ends of tapes
	ended      time.Time           // when the last process had ended; zero: one runs

	mu   sync.Mutex
	kept []*keptProcess // in the order in which they were found
}

// keptProcess is one process of a job.
type keptProcess struct {
	observed
	tape *tape.Kept
	ran  bool // when it was found

	paused  time.Time  // when it last stopped running; of the Keeper's goroutine
	reading sync.Mutex // held while the tape is read for a note
	stack   []string   // verdict.Note.Stack; guarded by reading, as are the following
	given   stays      // in the last note
	judged  stays      // in the notes that last showed a rank to be a straggler; nil while none is
	noted   bool       // the last ledger entry about them has some
}

// stays say how devices spent their time, by the generation of the communicator.
type stays map[uint32]model.Stay

// lastTime is how long the endpoint of a job is kept after all its processes have ended.
const lastTime = 5 * time.Second

// newJob makes a job from the first of its tapes that was found.
func (a *Agent) newJob(dir string, h tape.Header) (*keptJob, error) {
	j := &keptJob{
		agent: a, dir: dir, name: h.Job, size: h.JobSize, run: h.Run, conditions: &health.Conditions{},
		news: make(chan struct{}, 1),
	}
	s := *a.settings
	s.World = launch.World{Job: h.Job, Rank: -1, Size: h.JobSize, LocalRank: -1}
	s.attrs = []slog.Attr{slog.String("job", h.Job)}
	if parent := filepath.Dir(dir); parent == filepath.Clean(a.dirs[0]) { // where the next job's tapes will be
		if spare := s.sweepTapes(parent); spare >= 0 {
			// Keep those of this job and of the one before, for its post-mortem. sweepTapes has logged any error.
			_ = tape.MakeRoom(parent, max(spare, 2))
		}
	}
	j.keeper = agent.NewKeeper(j.event, j.exited)
	if s.RAS.On {
		var err error
		if j.nccl, err = newNCCLPoller(j, s.RAS.AcceptNCCLBugs); err == nil {
			j.ras, err = newKeptRAS(&s, j)
		}
		if err != nil {
			j.keeper.Close()
			return nil, err
		}
	}
	j.noting.start(j.noteHangs)
	j.running.start()
	j.ras.start(nil, "", nil)
	if a.ending.Load() {
		j.ras.ending()
	}
	j.nccl.start()
	return j, nil
}

// follow makes the follower of the tape of one of the job's processes; begin starts it. runs tells whether the process
// runs, or had ended when it was found.
func (j *keptJob) follow(t *tape.Kept, runs bool) (*keptProcess, error) {
	h, a := t.Header(), j.agent
	id := t.Process()
	if runs {
		t.Numbered(id.PID)
	} else {
		id.PID = h.KnownPID() // the pid by which it was known while it ran
	}
	var before uint
	for _, s := range j.keeper.Members() {
		if s.Member.PID == id.PID {
			before++
		}
	}
	m := a.self.Keep(words.Line(h.Host), id, h.Rank, h.JobSize).After(before)
	rank := strconv.Itoa(h.Rank)
	if h.Rank < 0 {
		rank = m.String()
	}
	s := *a.settings
	s.World = launch.World{Job: h.Job, Rank: h.Rank, Size: h.JobSize, LocalRank: -1}
	s.GPU = NoGPUs // only the agent itself watches GPUs
	s.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"job": h.Job, "rank": rank}, a.registry)
	s.attrs = []slog.Attr{slog.String("job", h.Job), slog.Int(semconv.LogRank, h.Rank)}
	if h.Rank < 0 {
		s.attrs[1] = slog.String(semconv.LogProcess, m.Name)
	}
	if h.SlowAfter >= model.MinLimit && h.SlowAfter <= model.MaxLimit {
		s.SlowThreshold = h.SlowAfter
	}
	if h.StallAfter >= model.MinLimit && h.StallAfter <= model.MaxLimit {
		s.StallThreshold = h.StallAfter
	}
	p := &keptProcess{
		observed: observed{settings: &s, ras: j.ras, conditions: j.conditions}, tape: t, ran: runs,
	}
	switch old, runs := j.of(h.Rank); {
	case runs:
		return nil, fmt.Errorf("job %s already has a rank %d, pid %d: a second job at the same time needs another "+
			"name (CARILLON_JOB, attach --job)", h.Job, h.Rank, old.telemetry.self.PID)
	case old != nil: // it was started again
		j.drop(context.Background(), old)
	}
	err := p.open(t, m, true)
	if err == nil {
		err = p.telemetry.register()
	}
	if err != nil {
		return nil, errors.Join(err, p.stop(context.Background()))
	}
	j.mu.Lock()
	j.kept, j.ended = append(j.kept, p), time.Time{}
	if j.leftovers == nil {
		j.leftovers = newLeftovers(p.settings, p.telemetry)
	}
	j.mu.Unlock()
	j.keeper.Add(m, func() bool { return t.Header().Closed })
	if runs {
		j.meet(m.PID)
	}
	return p, nil
}

// meet joins the agents of the job's other machines, at the addresses that the launcher of one of its processes set.
func (j *keptJob) meet(pid int) {
	at, err := j.agent.settings.meetingOf(pid, j.name, j.agent.self)
	if err == nil {
		err = j.ras.meetAgents(&at)
	}
	if err != nil && !j.alone {
		j.alone = true
		j.agent.settings.Log.Warn("nothing is known here of the job's other machines", "job", j.name, "error", err)
	}
}

// begin starts following a process.
func (j *keptJob) begin(p *keptProcess) {
	name, url := p.telemetry.self.Name, j.agent.health.URL()
	if url != "" {
		url = url[:len(url)-1] + mountedAt(j.dir, name)
	}
	p.start(url)
	j.running.also(func(context.Context) { // the tape may be closed long before its process ends
		<-p.telemetry.done
		if p.tape.Header().Closed {
			j.keeper.Left(name)
		}
	})
}

// goesOn tells whether a process isn't known to have died or left.
func goesOn(s mesh.Status) bool { return s.State != mesh.Dead && s.State != mesh.Left }

// of returns the followed process of a rank, nil if there is none, and whether it runs.
func (j *keptJob) of(rank int) (p *keptProcess, runs bool) {
	for s, p := range j.each {
		if s.Member.Rank == rank && rank >= 0 {
			return p, goesOn(s)
		}
	}
	return nil, false
}

// each yields the followed processes, by rank, and their states.
func (j *keptJob) each(yield func(mesh.Status, *keptProcess) bool) {
	for _, s := range j.keeper.Members() {
		if p := j.get(s.Member.Name); p != nil && !yield(s, p) {
			return
		}
	}
}

// get returns the followed process with a name; nil if there is none.
func (j *keptJob) get(name string) *keptProcess {
	for _, p := range j.all() {
		if p.telemetry.self.Name == name {
			return p
		}
	}
	return nil
}

// all returns the followed processes, in the order in which they were found.
func (j *keptJob) all() []*keptProcess {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.kept)
}

// event takes an event of RAS.
func (j *keptJob) event(e mesh.Event) {
	p := j.get(e.Member.Name)
	switch {
	case e.State == mesh.Stopped && p != nil:
		p.paused = e.Since
	case e.State == mesh.Alive && !e.Joined && p != nil:
		p.telemetry.resumed(tape.Now() - int64(time.Since(p.paused)))
	}
	j.leftovers.member(e)
	if j.ras != nil {
		j.ras.agent.Member(e)
	}
}

// exited notes how a process ended, for the post-mortem, unless the process had ended before the agent began.
func (j *keptJob) exited(m mesh.Member, exit process.Exit) {
	p := j.get(m.Name)
	if p == nil {
		return
	}
	h := p.tape.Header()
	if (p.ran || h.Created.After(j.agent.began)) && (exit.Known || !h.Closed) {
		end := process.Entry{Rank: m.Rank, PID: m.PID, Exit: exit, Found: !p.ran, Followed: p.ran}.Now()
		if h.AgentPID == 0 { // no agent has a pid for it: PID is the process's own
			end.PIDSpace = h.PIDSpace
		}
		_ = process.AppendEntry(j.dir, end) // a full disk, or another user's job: its launcher may record it
	}
}

// followed tells whether an agent has already followed the tape of a process that has ended, or that an agent left to
// the next one.
func followed(dir string, h *tape.Header) bool {
	entries, _ := process.ReadLedger(filepath.Join(dir, process.Ledger)) // up to an unreadable line
	return slices.ContainsFunc(entries, func(e process.Entry) bool {
		return e.Followed && e.PID == 0 && e.Boot == h.KernelBoot.String() && h.Created.Before(h.Wall(e.Mono))
	})
}

// told takes the open verdicts.
func (j *keptJob) told(open []verdict.Verdict) {
	var named []string
	slow := false
	for i := range open {
		named = append(named, open[i].ID)
		slow = slow || open[i].Reason == verdict.Straggler
	}
	for _, p := range j.all() {
		p.judge(slow)
	}
	if !slices.Equal(named, j.named) {
		j.named = named
		j.hangs.Store(len(named) > 0)
		select {
		case j.news <- struct{}{}:
		default:
		}
	}
	j.examine(open)
}

// judge keeps the stays of the last notes if these showed a rank to be a straggler.
func (p *keptProcess) judge(slow bool) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if p.judged = (stays{}); slow {
		p.judged = p.given
	}
}

// noteHangs notes in the ledger, while verdicts are open, that the job runs, and which processes are stopped, for the
// post-mortem of a job whose processes and agent are all killed. It does so at once when the open verdicts change, then
// at intervals that double, so that the last entry covers at least half of the time that the job hung, and once more
// when none is open.
func (j *keptJob) noteHangs(ctx context.Context) {
	var next <-chan time.Time // nil: none is open
	var pause time.Duration
	for {
		select {
		case <-j.news:
			pause = time.Second
		case <-next:
			pause *= 2
		case <-ctx.Done():
			if next != nil || j.hangs.Load() {
				j.noteHang()
			}
			return
		}
		j.noteHang()
		if next = nil; j.hangs.Load() {
			next = time.After(pause)
		}
	}
}

// noteHang makes the entries of noteHangs. They have one time, as they belong to one judgement. The evidence for a
// straggler is on no tape, so it is noted, too. Errors are ignored, as in exited.
func (j *keptJob) noteHang() {
	e := j.runs().Now()
	if len(e.Running) > 0 {
		_ = process.AppendEntry(j.dir, e)
	}
	for s, p := range j.each {
		if !goesOn(s) {
			continue
		}
		p.reading.Lock()
		judged, noted := p.judged, p.noted
		p.noted = len(judged) > 0
		p.reading.Unlock()
		if len(judged) == 0 && !noted {
			continue
		}
		if stays, err := json.Marshal(judged); err == nil {
			about := process.Entry{Time: e.Time, Mono: e.Mono, Boot: e.Boot, PIDSpace: e.PIDSpace, Stays: stays}
			about.Rank, about.PID = s.Member.Rank, s.Member.PID
			_ = process.AppendEntry(j.dir, about)
		}
	}
}

// runs returns the entry that says which processes run.
func (j *keptJob) runs() process.Entry {
	e := process.Entry{Rank: -1}
	for s := range j.each {
		if !goesOn(s) {
			continue
		}
		if e.Running = append(e.Running, s.Member.PID); s.State == mesh.Stopped {
			e.Stopped = append(e.Stopped, s.Member.PID)
		}
	}
	return e
}

// rankOf is the job rank of the process called name, according to its largest communicator; -1 if it has none or
// several.
func (j *keptJob) rankOf(name string) int {
	p := j.get(name)
	if p == nil {
		return -1
	}
	p.telemetry.observing.Lock()
	defer p.telemetry.observing.Unlock()
	if ranks := p.telemetry.process.Ranks(); len(ranks) == 1 {
		return ranks[0].Number
	}
	return -1
}

// note makes the note of a process, from its tape.
func (j *keptJob) note(m mesh.Member) (verdict.Note, bool) {
	p := j.get(m.Name)
	if p == nil {
		return verdict.Note{}, false
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	devices := p.telemetry.devices()
	p.given = stays{}
	for generation, d := range devices {
		if d.Stay.Over > 0 {
			p.given[generation] = d.Stay
		}
	}
	n := p.telemetry.note(devices)
	n.Stack = p.stack
	return n, true
}

// over tells whether all processes ended at least lastTime ago.
func (j *keptJob) over() bool {
	if slices.ContainsFunc(j.keeper.Members(), goesOn) {
		j.ended = time.Time{}
		return false
	}
	if j.ended.IsZero() {
		j.ended = time.Now()
	}
	return time.Since(j.ended) >= lastTime
}

// drop ends the parts of a process.
func (j *keptJob) drop(ctx context.Context, p *keptProcess) error {
	j.mu.Lock()
	j.kept = slices.DeleteFunc(j.kept, func(other *keptProcess) bool { return other == p })
	j.mu.Unlock()
	return errors.Join(p.stop(ctx), p.tape.Close())
}

// close reads the job's tapes to their ends, and then ends its parts.
func (j *keptJob) close(ctx context.Context) error {
	var errs []error
	for _, p := range j.all() {
		p.telemetry.sync(ctx, settleTimeout) // so that a failure not read yet is explained, too
	}
	j.nccl.stop()
	j.running.cancel()
	j.ras.stop(ctx)
	j.noting.stop()
	j.leftovers.end(ctx)
	j.agent.pushMetrics(ctx)
	// Before the processes are dropped, as it notes their ends so far.
	j.keeper.Close()
	_ = process.AppendEntry(j.dir, process.Entry{Rank: -1, Followed: true}) // else others may report it again
	for _, p := range j.all() {
		errs = append(errs, j.drop(ctx, p))
	}
	j.leftovers.rest(ctx, j.dir)
	j.running.stop()
	return errors.Join(errs...)
}

package node

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/ncclras"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// ncclPoller queries NCCL's own RAS about a job's ranks that have no tape here, and makes notes from the answers. While
// there are such ranks, it listens to the events that NCCL pushes, if this NCCL does. It queries the status once, and
// then only while something holds the job up, or a process doesn't answer NCCL. It doesn't query while the job makes or
// ends communicators. A nil ncclPoller does nothing.
type ncclPoller struct {
	job     *keptJob
	accept  []int               // numbers of NCCL's bugs
	here    map[netip.Addr]bool // this host's
	unknown *health.Warnable    // says why nothing is known from NCCL
	task    task

	// Used by the task alone.
	since  time.Time       // since when there are ranks without a tape; zero: there are none
	engine string          // that client queries; empty: there is none
	client *ncclras.Client // nil: NCCL must not be queried
	asked  bool            // client was asked for a status

	mu   sync.Mutex
	view ncclras.View
}

const (
	// askInterval is how often the poller checks whether to query NCCL.
	askInterval = time.Second
	// lateTime is how long ranks must be without a tape before NCCL is queried: the tape may still come.
	lateTime = 5 * time.Second
	// quietTime is how long ago the last communicator must have been made or ended: other ranks may still be busy with
	// it.
	quietTime = time.Second
	// ncclNotAsked is the condition that nothing is known about ranks without a tape.
	ncclNotAsked = "nccl_not_asked"
)

// newNCCLPoller makes a job's poller; start starts it.
func newNCCLPoller(j *keptJob, accept []int) (*ncclPoller, error) {
	unknown, err := j.conditions.Declare(health.Declaration{
		Code: ncclNotAsked, Title: "nothing is known of ranks that have no tape here",
	})
	if err != nil {
		return nil, err
	}
	a := &ncclPoller{job: j, accept: accept, here: map[netip.Addr]bool{}, unknown: unknown}
	addrs, _ := net.InterfaceAddrs() // on an error, addresses serve as host names
	for _, addr := range addrs {
		if p, err := netip.ParsePrefix(addr.String()); err == nil {
			a.here[p.Addr().Unmap()] = true
		}
	}
	return a, nil
}

func (a *ncclPoller) start() {
	if a == nil {
		return
	}
	a.task.start(func(ctx context.Context) {
		defer a.end()
		every(ctx, askInterval, func() { a.look(ctx) })
	})
}

func (a *ncclPoller) stop() {
	if a != nil {
		a.task.stop()
	}
}

// look queries NCCL, if there is something to ask about.
func (a *ncclPoller) look(ctx context.Context) {
	now := time.Now()
	engine := a.job.untaped()
	switch {
	case engine == "":
		a.since = time.Time{}
		a.end()
		return
	case a.since.IsZero():
		a.since = now
		return
	case now.Sub(a.since) < lateTime:
		return
	case engine != a.engine:
		a.end()
		a.begin(engine)
	}
	if a.client == nil || !a.wants() {
		return
	}
	s, err := a.client.Status(ctx)
	if errors.Is(err, ncclras.ErrNotQuiet) || errors.Is(err, ncclras.ErrTooSoon) || ctx.Err() != nil {
		return
	}
	a.asked = true
	switch {
	case errors.Is(err, ncclras.ErrHeld): // another agent queries, and shows the answer
	case err != nil:
		a.report(err, "; NCCL_RAS_ADDR must be the same for carillon agent as for the job")
	default:
		a.unknown.Clear("")
		a.mu.Lock()
		a.view.Learn(s, time.Now())
		a.mu.Unlock()
		a.job.ras.agent.Trouble()
	}
}

// wants reports whether a status is needed.
func (a *ncclPoller) wants() bool {
	a.mu.Lock()
	open := a.view.Open()
	a.mu.Unlock()
	r := a.job.ras
	return open || !a.asked || len(r.stuck()) > 0 || len(r.agent.Open()) > 0
}

// begin starts listening, if the NCCL version that engine names may be queried.
func (a *ncclPoller) begin(engine string) {
	a.engine = engine
	version, err := ncclras.ParseVersion(engine)
	cfg := ncclras.Config{Version: version, Ranks: a.job.size, Quiet: a.job.quiet, Accept: a.accept}
	if err == nil {
		cfg.Dir, err = filepath.Abs(a.job.dir)
	}
	if err == nil {
		a.client, err = ncclras.New(cfg)
	}
	if bug, ok := errors.AsType[*ncclras.BugError](err); ok {
		var numbers []string
		for _, b := range bug.Bugs {
			numbers = append(numbers, strconv.Itoa(b.Issue))
		}
		a.report(err, "; --accept-nccl-bugs="+strings.Join(numbers, ",")+" has carillon agent or attach take the risk")
	} else if err != nil {
		a.report(err, "")
	}
	if err == nil {
		a.client.Listen(a.onEvent)
	}
}

// end stops listening, and forgets NCCL's answers.
func (a *ncclPoller) end() {
	if a.client != nil {
		a.client.Close()
	}
	a.engine, a.client, a.asked = "", nil, false
	a.unknown.Clear("")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.view = ncclras.View{}
}

// report sets the condition that says why nothing is known about the ranks without a tape, and what helps.
func (a *ncclPoller) report(why error, advice string) {
	a.unknown.Set(health.Finding{
		Severity: bus.Info,
		Text: "some ranks have no tape here, so that nothing is known of them. " +
			strings.TrimPrefix(why.Error(), "ncclras: "),
		Advice: "with Carillon on their hosts, too, they have tapes" + advice,
	})
}

// onEvent takes an event that NCCL pushed.
func (a *ncclPoller) onEvent(ev ncclras.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.view.Hear(ev, time.Now())
}

// notes are the notes on processes without a tape.
func (a *ncclPoller) notes(own []verdict.Note) []verdict.Note {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view.Notes(own, a.host, time.Now())
}

// host is the name of the host with an address; empty if unknown.
func (a *ncclPoller) host(addr netip.Addr) string {
	if addr.IsLoopback() || a.here[addr] {
		return a.job.agent.self.Host
	}
	return ""
}

// processes yields the model of each process of the job, and whether the process still runs.
func (j *keptJob) processes(yield func(p *model.Process, runs bool) bool) {
	for s, p := range j.each {
		p.telemetry.observing.Lock()
		more := yield(p.telemetry.process, goesOn(s))
		p.telemetry.observing.Unlock()
		if !more {
			return
		}
	}
}

// quiet tells whether, by the tapes, no process is making or ending a communicator, or did so within quietTime.
func (j *keptJob) quiet() bool { return quietSince(tape.Now()-int64(quietTime), j.processes) }

func quietSince(since int64, processes iter.Seq2[*model.Process, bool]) bool {
	recent := func(c *model.Comm) bool {
		return c.Latest != nil && c.Latest.Kind != tape.ActGroup && c.Latest.End > since
	}
	for p, runs := range processes {
		open := slices.ContainsFunc(p.OpenActs(), func(a *model.Act) bool { return a.Kind != tape.ActGroup })
		if runs && open || slices.ContainsFunc(slices.Collect(p.Comms()), recent) ||
			slices.ContainsFunc(p.Ended(), recent) {
			return false
		}
	}
	return true
}

// untaped is the NCCL version, as "nccl 2.28.9", of a communicator that has ranks without a tape here; empty if there
// is none.
func (j *keptJob) untaped() string {
	ranks := map[int]bool{}
	for _, s := range j.ras.members() {
		if s.Member.Rank >= 0 {
			ranks[s.Member.Rank] = true
		}
	}
	if j.size > 0 && len(ranks) >= j.size {
		return ""
	}
	return untaped(j.processes)
}

func untaped(processes iter.Seq2[*model.Process, bool]) string {
	here := map[lifecycle.CommID]int{} // how many ranks have a tape
	var live []tape.CommInfo
	for p, runs := range processes {
		for c := range p.Comms() {
			here[c.ID]++
			if runs && c.End == nil && strings.HasPrefix(c.Engine, "nccl") {
				live = append(live, c.CommInfo)
			}
		}
		for _, c := range p.Ended() {
			here[c.ID]++
		}
	}
	for i := range live {
		if here[live[i].ID] < live[i].Size {
			return live[i].Engine
		}
	}
	return ""
}

package meshed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Result is that of a simulated job. All times but Analysis are virtual.
type Result struct {
	Seed     uint64 `json:"seed"`
	Ranks    int    `json:"ranks"`
	Members  int    `json:"members"`
	Machines int    `json:"machines"`
	// Bytes and Packets are the mean traffic of a member per second while the job was healthy.
	Bytes   float64 `json:"bytes_per_member_second"`
	Packets float64 `json:"packets_per_member_second"`
	// Faults are the faults and their verdicts.
	Faults []Outcome `json:"faults"`
	// False lists wrong events outside of the job: another reason, other culprits, or the same verdict twice.
	False []string `json:"false,omitempty"`
	// Missed lists verdicts that were not opened or not closed.
	Missed []string `json:"missed,omitempty"`
	// Analysis is the time to decode the notes of all members and to find the verdict, on the machine's own clock: the
	// longest of three for each rank that slept; 0 if none did.
	Analysis time.Duration `json:"analysis_ns,omitempty"`
	// Virtual is the duration of the whole run.
	Virtual time.Duration `json:"virtual_ns"`
}

// Outcome is that of one fault. The time of an event that did not happen is 0.
type Outcome struct {
	Fault  Fault  `json:"fault"`
	Victim int    `json:"victim"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
	// MembersFirst and MembersLast are when the first and the last member learned that a process died or stopped.
	MembersFirst time.Duration `json:"members_first_ns,omitempty"`
	MembersLast  time.Duration `json:"members_last_ns,omitempty"`
	// Verdict is when the verdict left the job, and Known when the last member knew it: after the fault, or, for a rank
	// that sleeps, after the first rank that waits for it reached the stall threshold.
	Verdict time.Duration `json:"verdict_ns,omitempty"`
	Known   time.Duration `json:"known_ns,omitempty"`
	// Withdrawn is the time from the end of the fault until no member had an open verdict.
	Withdrawn time.Duration `json:"withdrawn_ns,omitempty"`
}

// runner is one run.
type runner struct {
	*Job
	plan   *Plan
	result Result
	except []*sim.Rank // the dead
}

// link is the network between machines.
var link = sim.Link{Delay: 100 * time.Microsecond, Jitter: 200 * time.Microsecond, Local: 20 * time.Microsecond}

// Run simulates a job in a bubble of synctest. progress, unless nil, is called with each thing that it does.
func Run(ctx context.Context, p Plan, progress func(string)) (result Result, err error) {
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	if progress == nil {
		progress = func(string) {}
	}
	members, machines := p.members()
	progress(fmt.Sprintf("%d ranks in %d processes on %d machines: they get to know each other", p.Ranks,
		members, machines))
	j, err := Start(ctx, Config{
		Seed: p.Seed, Members: members, Ranks: p.Each, Machines: machines, Link: link, Tuning: mesh.LAN(),
	})
	defer func() {
		if e := j.Close(); err == nil {
			err = e
		}
	}()
	if err != nil {
		return Result{}, err
	}
	r := &runner{Job: j, plan: &p}
	r.result = Result{Seed: p.Seed, Ranks: p.Ranks, Members: members, Machines: machines}
	time.Sleep(10*time.Second + time.Duration(members)*50*time.Millisecond) // until the gossip of the joins has ended
	began := time.Now()
	progress("all is well")
	r.quiet()
	script := p.Script()
	for i, s := range script {
		if ctx.Err() != nil {
			return r.result, context.Cause(ctx)
		}
		o := r.step(s)
		progress(fmt.Sprintf("%d of %d: %s", i+1, len(script), o.line(s)))
		r.result.Faults = append(r.result.Faults, o)
		time.Sleep(3 * time.Second)
	}
	r.result.Virtual = time.Since(began)
	return r.result, nil
}

// line is the summary of an outcome.
func (o *Outcome) line(s Step) string {
	switch {
	case s.Fault == FaultLoss || s.Fault == FaultDelay:
		return s.String() + ": nothing is to be told"
	case o.Reason == "":
		return s.String() + ": not told"
	}
	return fmt.Sprintf("%s: %s after %v, withdrawn after %v", s, o.Reason, words.Round(o.Verdict),
		words.Round(o.Withdrawn))
}

// quiet measures the traffic of a healthy job, in which any verdict is false.
func (r *runner) quiet() {
	packets, bytes := r.Network.Traffic()
	time.Sleep(quietTime)
	p, b := r.Network.Traffic()
	per := float64(len(r.Ranks)) * quietTime.Seconds()
	r.result.Packets, r.result.Bytes = float64(p-packets)/per, float64(b-bytes)/per
	r.judge(Step{}, time.Time{}, func(*Told) bool { return false })
}

// judge records verdicts that were opened since from and are not right, or are opened twice, or not closed.
func (r *runner) judge(s Step, from time.Time, right func(*Told) bool) {
	open, seen := map[string]string{}, map[string]bool{}
	for _, t := range r.Told() {
		switch {
		case t.At.Before(from):
		case t.Stage == bus.Opened:
			if seen[t.Key] || !right(&t) {
				r.result.False = append(r.result.False, t.String())
			}
			seen[t.Key], open[t.Key] = true, t.String()
		case t.Stage == bus.Closed:
			delete(open, t.Key)
		}
	}
	for _, text := range open {
		r.miss(s, "not closed: "+text)
	}
}

// miss records a verdict that was not opened or not closed.
func (r *runner) miss(s Step, what string) {
	r.result.Missed = append(r.result.Missed, fmt.Sprintf("%v: %s", s, what))
}

// step injects one fault, and heals it.
func (r *runner) step(s Step) (o Outcome) {
	o = Outcome{Fault: s.Fault, Victim: s.Victim}
	from := time.Now()
	right := func(*Told) bool { return false }
	switch s.Fault {
	case FaultKill, FaultStop:
		right = r.process(s, &o)
	case FaultSleep:
		right = r.sleep(s, &o)
	case FaultPartition:
		right = r.partition(s, &o)
	case FaultLoss, FaultDelay:
		worse := link
		if s.Fault == FaultLoss {
			worse.Loss = 0.1
		} else {
			worse.Delay, worse.Jitter = 20*time.Millisecond, 20*time.Millisecond
		}
		r.Network.SetLink(worse)
		time.Sleep(faultTime)
		r.Network.SetLink(link)
	}
	if o.Reason != "" {
		healed := time.Now()
		if !sim.Until(time.Minute, func() bool { return r.AllHold(nil) }) {
			r.miss(s, "not withdrawn everywhere within a minute")
		}
		o.Withdrawn = time.Since(healed)
	}
	r.judge(s, from, right)
	return o
}

// process kills or stops a member.
func (r *runner) process(s Step, o *Outcome) (right func(*Told) bool) {
	victim := r.Ranks[s.Victim]
	state, reason := mesh.Dead, verdict.RankDead
	if s.Fault == FaultStop {
		state, reason = mesh.Stopped, verdict.RankStopped
		if r.alone(s.Victim) { // no process on its machine can tell why it is silent
			state, reason = mesh.Unreachable, verdict.RankUnreachable
		}
	}
	right = expect(reason, func(_ *Told, c *verdict.Rank) bool { return c.Member == victim.Name() })
	from := time.Now()
	if s.Fault == FaultKill {
		r.Kill(s.Victim, process.Exit{})
		r.except = append(r.except, victim)
	} else {
		r.Stop(s.Victim)
	}
	is := func(i int) bool { return i == s.Victim }
	r.await(s, o, from, from, is, right)
	var err error
	if o.MembersFirst, o.MembersLast, err = r.WaitTold(time.Minute, from, state, victim.Name(),
		append(slices.Clone(r.except), victim)...); err != nil {
		r.miss(s, err.Error())
	}
	time.Sleep(model.DefaultFloor + time.Second) // until the others stall
	if s.Fault == FaultKill {
		r.Model.Restart()
	} else {
		r.Continue(s.Victim)
	}
	return right
}

// alone tells whether the other processes on the member's machine have ended.
func (r *runner) alone(member int) bool {
	return !slices.ContainsFunc(r.Ranks, func(o *sim.Rank) bool {
		other := o.Process.Member().Rank
		return other != member && r.Machine(other) == r.Machine(member) && !o.Process.Ended()
	})
}

// sleep makes a rank sleep.
func (r *runner) sleep(s Step, o *Outcome) (right func(*Told) bool) {
	member := r.Ranks[s.Victim/r.plan.Each].Name()
	right = expect(verdict.NotEntered, func(_ *Told, c *verdict.Rank) bool { return c.Member == member })
	from := time.Now()
	r.Model.Sleep(s.Victim)
	if !sim.Until(faultTime, func() bool { return len(r.opened(from)) > 0 }) {
		r.miss(s, "no verdict")
	}
	due := time.Unix(0, r.Model.Oldest()).Add(model.DefaultFloor)
	r.await(s, o, from, due, nil, right)
	for range 3 {
		r.result.Analysis = max(r.result.Analysis, r.analyse())
	}
	time.Sleep(3 * time.Second)
	r.Model.Wake(s.Victim)
	return right
}

// partition cuts a machine off.
func (r *runner) partition(s Step, o *Outcome) (right func(*Told) bool) {
	there := func(i int) bool { return r.Machine(i) == s.Victim }
	host := r.Ranks[s.Victim*len(r.Ranks)/len(r.Machines)].Process.Member().Host
	right = expect(verdict.RankUnreachable, func(t *Told, c *verdict.Rank) bool { // each side names the other
		return (c.Host == host) != there(t.By)
	})
	from := time.Now()
	r.Cut(s.Victim, true)
	here := func(t *Told) bool { return !there(t.By) && right(t) }
	r.await(s, o, from, from, there, here)
	time.Sleep(3 * time.Second)
	r.Cut(s.Victim, false)
	return right
}

// expect tells whether a verdict has the reason and culprits, each of which is at fault.
func expect(reason verdict.Reason, atFault func(*Told, *verdict.Rank) bool) func(*Told) bool {
	return func(t *Told) bool {
		innocent := func(c verdict.Rank) bool { return !atFault(t, &c) }
		v := &t.Verdict
		return v.Reason == reason && len(v.Culprits) > 0 && !slices.ContainsFunc(v.Culprits, innocent)
	}
}

func (r *runner) opened(from time.Time) (told []Told) {
	for _, t := range r.Told() {
		if t.Stage == bus.Opened && !t.At.Before(from) {
			told = append(told, t)
		}
	}
	return told
}

// await waits for the right verdict, and until all members but the excepted ones know it.
func (r *runner) await(s Step, o *Outcome, from, due time.Time, except func(int) bool, right func(*Told) bool) {
	find := func() int { return slices.IndexFunc(r.opened(from), func(t Told) bool { return right(&t) }) }
	if !sim.Until(time.Minute, func() bool { return find() >= 0 }) {
		r.miss(s, "no verdict within a minute")
		return
	}
	t := r.opened(from)[find()]
	o.Reason, o.Text, o.Verdict = t.Verdict.Reason.String(), t.Verdict.Text.String(), t.At.Sub(due)
	if !sim.Until(time.Minute, func() bool { return r.AllHold(except, t.Key) }) {
		r.miss(s, "not all members know the verdict within a minute")
	}
	o.Known = r.Known(t.Key).Sub(due)
}

// analyse measures the coordinator's computing time for a verdict.
func (r *runner) analyse() time.Duration {
	var answers [][]byte
	for i := range r.Members {
		if r.Ranks[i].Process.Ended() {
			continue
		}
		n := r.note(i, r.Ranks[i].Process.Member())
		if b, err := json.Marshal(&n); err == nil {
			answers = append(answers, b)
		}
	}
	began := process.Monotonic()
	notes := make([]verdict.Note, len(answers))
	for i, b := range answers {
		if err := json.Unmarshal(b, &notes[i]); err != nil {
			r.result.Missed = append(r.result.Missed, "a note can't be read: "+err.Error())
		}
	}
	verdict.Diagnose(notes)
	return time.Duration(process.Monotonic() - began)
}

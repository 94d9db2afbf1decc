package corpus

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Told is a verdict that was told, and when, in nanoseconds of the job's clock.
type Told struct {
	At      int64
	Verdict verdict.Verdict
}

// Result is what was said about a trial.
type Result struct {
	Trial *Trial
	Live  []Told               // while it ran, in the order of time
	After []postmortem.Finding // after its end
	Ended postmortem.Ending    // how it ended, as the post-mortem says
	Began int64                // the job, on its clock
	Gone  bool                 // all processes ended by themselves, too soon after the first to say why
	Over  int64                // when it came to its End
	Scale int64                // how many times faster than its trial says all goes on; 0 is 1
}

const (
	// diagnosed is how long a job goes on after a fault: until it has been diagnosed, and a while longer for anything
	// else that may be said.
	diagnosed = 40 * time.Second
	longest   = 5 * time.Minute
	// BetweenKills is the time between two processes that are killed in turn.
	BetweenKills = 7 * time.Millisecond
	// goneTime is how soon after the first process of a job the others end, for none to be left that says why.
	goneTime = int64(500 * time.Millisecond)
)

// Play plays a trial in virtual time: its agents in the members' processes, and its tapes after its end. dir is an
// empty folder for the tapes.
func Play(t *Trial, dir string) (*Result, error) {
	l := &t.Layout
	j := jobsim.New(jobsim.Config{Processes: l.Processes(), Hosts: l.Hosts, OnError: t.Errors}, l.PerProcess)
	res := &Result{Trial: t, Began: j.Now()}
	live := NewLive(j)
	live.Told = func(at int64, told *agent.Tell) {
		if told.Change.Kind == verdict.Opened && res.Over == 0 {
			res.Live = append(res.Live, Told{at, told.Change.Verdict})
		}
	}
	for _, r := range j.Ranks {
		for _, program := range t.Program(r.Job, j.Now) {
			r.Run(program)
		}
	}
	for i := range t.Faults {
		if f := &t.Faults[i]; f.Kind.Strike != None {
			j.After(f.Delay(), func() { live.strike(l, f) })
		}
	}
	running := func(p *jobsim.Process) bool { return !p.State.Ended() }
	for !t.Over(time.Duration(j.Now()-res.Began), j.Now(), 1) && slices.ContainsFunc(j.Processes, running) {
		j.Run(j.Now() + int64(100*time.Millisecond))
	}
	first := slices.MinFunc(j.Processes, func(a, b *jobsim.Process) int { return cmp.Compare(a.Since, b.Since) })
	res.Gone = !slices.ContainsFunc(j.Processes, func(p *jobsim.Process) bool {
		return running(p) || p.Since-first.Since >= goneTime
	})
	res.Over = j.Now()
	t.end(j, live)
	report, err := live.Read(dir)
	if err == nil {
		res.Read(report)
	}
	return res, err
}

// Read takes what the tapes say after the job's end.
func (r *Result) Read(report *postmortem.Report) {
	r.After, r.Ended = slices.Concat(report.Findings, report.Held), report.Ended
}

// strike lets happen what comes from outside.
func (l *Live) strike(layout *Layout, f *Fault) {
	own := l.job.Ranks[f.Rank].Process
	if own.State != jobsim.Running {
		return
	}
	f.Since = l.job.Now()
	for _, i := range f.Processes(layout) {
		switch p := l.job.Processes[i]; f.Kind.Strike {
		case Stops:
			p.Stop()
			if f.Kind.Passes {
				l.job.After(f.For, p.Continue)
			}
		case Kills:
			p.Kill(killed)
		case None, Cuts:
		}
	}
	if f.Kind.Strike == Cuts {
		l.Cut(own.Host, true)
	}
}

var killed = process.Exit{Known: true, Signal: unix.SIGKILL}

// Delay is how long after its beginning a job is struck from outside.
func (f *Fault) Delay() time.Duration { return time.Duration(f.At%20_000) * time.Millisecond }

// Over tells whether the trial has come to its end, after it has gone on for so long: its faults have been diagnosed by
// then. now is the clock of their beginnings, which goes scale times slower than the trial's.
func (t *Trial) Over(age time.Duration, now, scale int64) bool {
	last, shows, wait := int64(0), false, diagnosed
	for i := range t.Faults {
		f := &t.Faults[i]
		last = max(last, f.Since)
		shows = shows || !f.Kind.Healthy
		if f.Kind.Long {
			wait = diagnosed * time.Duration(scale) // it takes as long, however fast all goes on
		}
	}
	return age > longest || last > 0 && (now-last)*scale > int64(wait) || !shows && age > t.EndAt
}

// end brings the job to its end.
func (t *Trial) end(j *jobsim.Job, live *Live) {
	if t.End == Cancelled {
		live.Ending()
	}
	for i, p := range j.Processes {
		switch t.End {
		case LeftAlone:
		case Cancelled:
			j.After(time.Duration(i%5)*time.Millisecond, func() {
				p.Kill(process.Exit{Known: true, Signal: unix.SIGTERM})
			})
		case KilledAtOnce:
			p.Kill(killed)
		case KilledInTurn:
			j.After(time.Duration(i)*BetweenKills, func() { p.Kill(killed) })
		}
	}
	j.Run(j.Now() + int64(time.Second) + int64(len(j.Processes))*int64(BetweenKills))
}

// Score is how right it is what was said.
type Score struct {
	Right     bool          // the right ranks were named, for a right reason, or the one that explains another
	Named     bool          // ranks were named
	Excused   bool          // there was nothing to be said, or nobody to say it, and nobody was named
	Innocents []int         // ranks that were named and did nothing wrong
	Delay     time.Duration // from the threshold after the fault until the right thing was said
}

// Scores are those of what was said live, and after the end.
func (r *Result) Scores() (live, after Score) {
	live = r.score(r.Live, false)
	live.Excused = live.Excused || r.Gone && !live.Named && !live.Right
	var said []Told
	for _, f := range r.After {
		said = append(said, Told{r.Over, f.Verdict})
	}
	return live, r.score(said, true)
}

// score scores what was said; if first, what was said first must be right.
func (r *Result) score(said []Told, first bool) (s Score) {
	t := r.Trial
	var faults []*Fault // that have begun
	healthy, optional := true, true
	for i := range t.Faults {
		f := &t.Faults[i]
		healthy = healthy && f.Kind.Healthy
		if !f.Kind.Healthy && f.Since > 0 {
			faults, optional = append(faults, f), optional && f.Kind.Optional
		}
	}
	explained := make([]bool, len(faults))
	for k, f := range faults { // of two, one may have had no time to show
		explained[k] = len(faults) > 1 && (r.Over-f.Since)*max(r.Scale, 1) < int64(Threshold)
	}
	hits := make([]bool, len(said))
	for i := range said {
		v := &said[i].Verdict
		var innocents []int
		for _, c := range v.Culprits {
			s.Named = true
			guilty := false
			for k, f := range faults {
				if from, to := f.ranks(&t.Layout); c.Job < from || c.Job >= to {
					continue
				}
				guilty = true
				if slices.Contains(f.Kind.Reasons, v.Reason) {
					hits[i], explained[k] = true, true
				}
			}
			if !guilty {
				innocents = append(innocents, c.Job)
			}
		}
		if !hits[i] || !pair(v) {
			s.Innocents = append(s.Innocents, innocents...)
		}
		for k, f := range faults {
			explained[k] = explained[k] || hits[i] && slices.ContainsFunc(v.Victims, func(w verdict.Wait) bool {
				return w.Rank.Job == f.Rank
			})
		}
		if hits[i] && s.Delay == 0 {
			s.Delay = time.Duration(said[i].At - t.Faults[0].Since - int64(Threshold)/max(r.Scale, 1))
		}
	}
	switch {
	case healthy:
		s.Right = !s.Named
	case len(faults) == 0 || optional && !s.Named:
		s.Excused = !s.Named
	default:
		s.Right = !slices.Contains(explained, false) && slices.Contains(hits, true) && (!first || hits[0])
	}
	return s
}

// pair tells whether a verdict says that two ranks disagree, and leaves it open which of them is wrong.
func pair(v *verdict.Verdict) bool {
	return len(v.Culprits) == 2 && (v.Reason == verdict.Mismatch || v.Reason == verdict.Deadlock)
}

// ranks are those that are at fault: from the first one to before the second one.
func (f *Fault) ranks(l *Layout) (from, to int) {
	n := 1
	switch {
	case f.Kind.Strike == Cuts: // each side may name the other
		n = l.Ranks()
	case f.Kind.Host:
		n = l.Ranks() / l.Hosts
	case f.Kind.Process:
		n = l.PerProcess
	}
	from = f.Rank / n * n
	return from, from + n
}

// Processes are those that are struck from outside.
func (f *Fault) Processes(l *Layout) (processes []int) {
	from, to := f.ranks(l)
	for rank := from; rank < to; rank += l.PerProcess {
		processes = append(processes, rank/l.PerProcess)
	}
	return processes
}

// Write tells a result: what was done wrong, and what was said of it when.
func (r *Result) Write(w io.Writer) {
	live, after := r.Scores()
	seconds := func(at int64) float64 { return float64(at-r.Began) / 1e9 }
	fmt.Fprintf(w, "%v; programs that meet an error %v\n", r.Trial, r.Trial.Errors)
	for i := range r.Trial.Faults {
		if f := &r.Trial.Faults[i]; f.Since > 0 {
			fmt.Fprintf(w, "  %8.3f s  %v\n", seconds(f.Since), f)
		}
	}
	say := func(at int64, v *verdict.Verdict) {
		fmt.Fprintf(w, "  %8.3f s  %s (%s): %v\n", seconds(at), v.Reason, v.Confidence, v.Text)
		for _, e := range v.Evidence {
			fmt.Fprintf(w, "               - %v\n", e)
		}
	}
	for i := range r.Live {
		say(r.Live[i].At, &r.Live[i].Verdict)
	}
	fmt.Fprintf(w, "  live: %v\n  %8.3f s  %v. %s\n", live, seconds(r.Over), r.Trial.End, r.Ended.Text)
	for i := range r.After {
		say(r.Over, &r.After[i].Verdict)
	}
	fmt.Fprintf(w, "  after the end: %v\n", after)
}

// Wrong tells whether the trial counts as told wrongly, or somebody innocent was named.
func (s *Score) Wrong() bool { return !s.Right && !s.Excused || len(s.Innocents) > 0 }

// String is "right", "wrong", "excused" or "nobody is named", with the innocents that were named.
func (s Score) String() string {
	text := "wrong"
	switch {
	case s.Right:
		text = "right"
	case s.Excused:
		text = "excused"
	case !s.Named:
		text = "nobody is named"
	}
	if len(s.Innocents) > 0 {
		text += ", and innocent are " + words.Ranks(s.Innocents)
	}
	return text
}

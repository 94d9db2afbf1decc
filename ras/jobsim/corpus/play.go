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

// Told is a verdict and when it was published, on the job's clock.
type Told struct {
	At      int64
	Verdict verdict.Verdict
}

// Result holds the verdicts on a trial.
type Result struct {
	Trial *Trial
	Live  []Told               // while it ran, in order
	After []postmortem.Finding // of the post-mortem
	Ended postmortem.Ending    // how it ended, by the post-mortem
	Began int64                // when the job began, on its clock
	Gone  bool                 // all processes exited before any could diagnose the first exit
	Over  int64                // when it came to its End
	Scale int64                // how many times faster than its trial the job ran; 0 is 1
}

const (
	// diagnosed is how long a job continues after a fault: until its verdict, and a while longer for wrong ones.
	diagnosed = 40 * time.Second
	longest   = 5 * time.Minute
	// BetweenKills is the time between two kills of KilledInTurn.
	BetweenKills = 7 * time.Millisecond
	// goneTime is the time within which all processes exit if none is left to diagnose the first exit.
	goneTime = int64(500 * time.Millisecond)
)

// Play plays a trial in virtual time, with an agent in each process, and reads its tapes after its end. dir is an empty
// folder for the tapes.
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

// Read takes the findings of the post-mortem.
func (r *Result) Read(report *postmortem.Report) {
	r.After, r.Ended = slices.Concat(report.Findings, report.Held), report.Ended
}

// strike makes a strike from outside happen.
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

// Delay is the time from the job's beginning to the strike.
func (f *Fault) Delay() time.Duration { return time.Duration(f.At%20_000) * time.Millisecond }

// Over tells whether a trial of that age is over: it had time for the verdicts on its faults. now is on the clock of
// Fault.Since, which is scale times slower than the trial's.
func (t *Trial) Over(age time.Duration, now, scale int64) bool {
	last, shows, wait := int64(0), false, diagnosed
	for i := range t.Faults {
		f := &t.Faults[i]
		last = max(last, f.Since)
		shows = shows || !f.Kind.Healthy
		if f.Kind.Long {
			wait = diagnosed * time.Duration(scale) // its detection is no faster in a faster job
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

// Score compares verdicts with the faults.
type Score struct {
	Right     bool          // each fault has a verdict with its rank and a right reason, or one that explains it
	Named     bool          // some verdict names a culprit
	Excused   bool          // no verdict was needed or possible, and none names a culprit
	Innocents []int         // culprits without a fault
	Delay     time.Duration // from the threshold after the fault until the first right verdict
}

// Scores are those of the live verdicts and of the post-mortem.
func (r *Result) Scores() (live, after Score) {
	live = r.score(r.Live, false)
	live.Excused = live.Excused || r.Gone && !live.Named && !live.Right
	var said []Told
	for _, f := range r.After {
		said = append(said, Told{r.Over, f.Verdict})
	}
	return live, r.score(said, true)
}

// score scores verdicts; if first, the first one must be right.
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
	for k, f := range faults { // one of two faults may have had no time to stall the job
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
				if from, to := f.ranks(&t.Layout, aboutProcess(v)); c.Job < from || c.Job >= to {
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

// pair tells whether a verdict names two ranks that disagree, either of which may be wrong.
func pair(v *verdict.Verdict) bool {
	return len(v.Culprits) == 2 && (v.Reason == verdict.Mismatch || v.Reason == verdict.Deadlock)
}

// aboutProcess tells whether a verdict is about what happened to a process, and so names all its ranks.
func aboutProcess(v *verdict.Verdict) bool {
	return slices.Contains([]verdict.Reason{verdict.RankDead, verdict.RankStopped, verdict.RankUnreachable}, v.Reason)
}

// ranks is the range of the ranks at fault, or of all ranks of their process: from ≤ rank < to.
func (f *Fault) ranks(l *Layout, process bool) (from, to int) {
	n := 1
	switch {
	case f.Kind.Strike == Cuts: // each side may name the other
		n = l.Ranks()
	case f.Kind.Host:
		n = l.Ranks() / l.Hosts
	case f.Kind.Process || process:
		n = l.PerProcess
	}
	from = f.Rank / n * n
	return from, from + n
}

// Processes are the processes that a strike hits.
func (f *Fault) Processes(l *Layout) (processes []int) {
	from, to := f.ranks(l, true)
	for rank := from; rank < to; rank += l.PerProcess {
		processes = append(processes, rank/l.PerProcess)
	}
	return processes
}

// Write writes the faults and the verdicts, each with its time.
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

// Wrong tells whether a verdict is missing, or names an innocent rank.
func (s *Score) Wrong() bool { return !s.Right && !s.Excused || len(s.Innocents) > 0 }

// String is "right", "wrong", "excused" or "nobody is named", and the innocents.
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

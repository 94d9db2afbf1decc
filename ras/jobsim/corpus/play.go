package corpus

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
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

// How long a job goes on after a fault: until it has been diagnosed, and a while for what else may be said.
const (
	diagnosed    = 40 * time.Second
	longest      = 5 * time.Minute
	betweenKills = 7 * time.Millisecond
)

// Play plays a trial in virtual time: its agents in the members' processes, and its tapes after its end. dir is an
// empty folder for the tapes.
func Play(t *Trial, dir string) (*Result, error) {
	l := &t.Layout
	j := jobsim.New(jobsim.Config{Seed: t.Seed, Processes: l.Processes(), Hosts: l.Hosts, OnError: t.Errors}, l.PerProcess)
	res := &Result{Trial: t, Began: j.Now()}
	live := NewLive(j, model.Limits{Floor: Threshold})
	live.Tapes = NewTapes(j, model.DefaultSlow, Threshold)
	live.Told = func(at int64, told *agent.Tell) {
		if told.Change.Kind == verdict.Opened && res.Over == 0 {
			res.Live = append(res.Live, Told{at, told.Change.Verdict})
		}
	}
	for _, r := range j.Ranks {
		for _, program := range t.Program(r.Job, j.Now) {
			r.Run(program, nil)
		}
	}
	for i := range t.Faults {
		f := &t.Faults[i]
		if f.Kind.Strike == nil {
			continue
		}
		j.After(f.Delay(), func() {
			if s := j.Ranks[f.Rank].Process.State; s != jobsim.Running {
				return
			}
			f.Since = j.Now()
			f.Kind.Strike(outside{live}, f)
		})
	}
	over := func() bool {
		return t.Over(time.Duration(j.Now()-res.Began), j.Now(), 1) ||
			!slices.ContainsFunc(j.Processes, func(p *jobsim.Process) bool {
				return p.State == jobsim.Running || p.State == jobsim.Stopped
			})
	}
	for !over() {
		j.Run(j.Now() + int64(100*time.Millisecond))
	}
	res.Over, res.Gone = j.Now(), goneAtOnce(j)
	t.end(j, live)
	return res, res.readTapes(dir, live)
}

// goneTime is how soon after the first process of a job the others end, for none to be left that says why.
const goneTime = 500 * time.Millisecond

// goneAtOnce tells whether all processes of a job ended within goneTime.
func goneAtOnce(j *jobsim.Job) bool {
	first, last := j.Processes[0].Since, j.Processes[0].Since
	for _, p := range j.Processes {
		if p.State != jobsim.Dead && p.State != jobsim.Departed {
			return false
		}
		first, last = min(first, p.Since), max(last, p.Since)
	}
	return last-first < int64(goneTime)
}

// outside is the Outside of a simulated job.
type outside struct{ *Live }

func (o outside) process(rank int) *jobsim.Process { return o.job.Ranks[rank].Process }

func (o outside) After(d time.Duration, f func()) { o.job.After(d, f) }
func (o outside) Kill(rank int)                   { o.process(rank).Kill("SIGKILL") }

func (o outside) Stop(rank int, stopped bool) {
	if p := o.process(rank); stopped {
		p.Stop()
	} else {
		p.Continue()
	}
}

func (o outside) Freeze(rank int, stopped bool) { o.job.Freeze(o.process(rank).Host, stopped) }

func (o outside) Cut(rank int) {
	o.job.Cut(o.process(rank).Host, true)
	o.Live.Cut()
}

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
	switch t.End {
	case LeftAlone, numEnds:
	case Cancelled:
		live.Ending()
		for i, p := range j.Processes {
			j.After(time.Duration(i%5)*time.Millisecond, func() { p.Kill("SIGTERM") })
		}
	case KilledAtOnce:
		for _, p := range j.Processes {
			p.Kill("SIGKILL")
		}
	case KilledInTurn:
		for i, p := range j.Processes {
			j.After(time.Duration(i)*betweenKills, func() { p.Kill("SIGKILL") })
		}
	}
	j.Run(j.Now() + int64(time.Second) + int64(len(j.Processes))*int64(betweenKills))
}

// readTapes takes what the tapes say after the job's end.
func (r *Result) readTapes(dir string, live *Live) error {
	if err := live.Tapes.Write(dir); err != nil {
		return err
	}
	report, err := postmortem.Read([]string{dir}, postmortem.Options{Last: 1, Run: -1})
	if err != nil {
		return err
	}
	r.After, r.Ended = append(report.Findings, report.Held...), report.Ended
	return nil
}

// Score is how right it is what was said.
type Score struct {
	Right     bool          // the right ranks were named, for a right reason
	Named     bool          // ranks were named
	Innocents []int         // ranks that were named and did nothing wrong
	Delay     time.Duration // from the threshold after the fault until the right thing was said
}

// Scores are those of what was said live, and after the end.
func (r *Result) Scores() (live, after Score) {
	var said []Told
	for _, f := range r.After {
		said = append(said, Told{r.Over, f.Verdict})
	}
	live = r.score(r.Live)
	if r.Gone && !live.Named {
		live.Right = true
	}
	after = r.score(said)                                 // of the whole report nobody innocent may be blamed
	after.Right = r.score(said[:min(len(said), 1)]).Right // what comes first must be right
	return live, after
}

func (r *Result) score(said []Told) Score {
	var s Score
	sick := slices.ContainsFunc(r.Trial.Faults, func(f Fault) bool { return !f.Kind.Healthy && f.Since > 0 })
	guilty := map[int]*Kind{}
	excuse := true // the job may get over it, so that to say nothing is right, too
	for i := range r.Trial.Faults {
		f := &r.Trial.Faults[i]
		if f.Kind.Healthy || f.Since == 0 {
			continue
		}
		for _, rank := range f.ranks(&r.Trial.Layout) {
			guilty[rank] = f.Kind
		}
		excuse = excuse && f.Kind.Optional
	}
	for i := range said {
		v := &said[i].Verdict
		hit := false
		var innocents []int
		for _, c := range v.Culprits {
			s.Named = true
			if kind := guilty[c.Job]; kind == nil {
				innocents = append(innocents, c.Job)
			} else if slices.Contains(kind.Reasons, v.Reason) {
				hit = true
			}
		}
		if !hit || !pair(v) {
			s.Innocents = append(s.Innocents, innocents...)
		}
		if hit && !s.Right {
			s.Right, s.Delay = true, time.Duration(said[i].At-r.Trial.Faults[0].Since-int64(Threshold)/max(r.Scale, 1))
		}
	}
	if !sick {
		s.Right = !s.Named
	} else if !s.Named && excuse {
		s.Right = true
	}
	return s
}

// pair tells whether a verdict says that two ranks disagree, and leaves it open which of them is wrong.
func pair(v *verdict.Verdict) bool {
	return len(v.Culprits) == 2 && (v.Reason == verdict.Mismatch || v.Reason == verdict.Deadlock)
}

// ranks are those that are at fault.
func (f *Fault) ranks(l *Layout) []int {
	from, n := f.Rank, 1
	switch {
	case f.Kind.Sides:
		from, n = 0, l.Ranks()
	case f.Kind.Host:
		n = l.Ranks() / l.Hosts
		from = f.Rank / n * n
	case f.Kind.Process:
		n = l.PerProcess
		from = f.Rank / n * n
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = from + i
	}
	return ranks
}

// Write tells a result: what was done wrong, and what was said of it when.
func (r *Result) Write(w io.Writer) {
	live, after := r.Scores()
	fmt.Fprintf(w, "%v; programs that meet an error %v\n", r.Trial, r.Trial.Errors)
	for i := range r.Trial.Faults {
		if f := &r.Trial.Faults[i]; f.Since > 0 {
			fmt.Fprintf(w, "  %8.3f s  %v\n", r.seconds(f.Since), f)
		}
	}
	say := func(at int64, v *verdict.Verdict) {
		fmt.Fprintf(w, "  %8.3f s  %s (%s): %v\n", r.seconds(at), v.Reason, v.Confidence, v.Text)
		for _, e := range v.Evidence {
			fmt.Fprintf(w, "               - %v\n", e)
		}
	}
	for i := range r.Live {
		say(r.Live[i].At, &r.Live[i].Verdict)
	}
	fmt.Fprintf(w, "  live: %v\n  %8.3f s  %v. %s\n", live, r.seconds(r.Over), r.Trial.End, r.Ended.Text)
	for i := range r.After {
		say(r.Over, &r.After[i].Verdict)
	}
	fmt.Fprintf(w, "  after the end: %v\n", after)
}

func (r *Result) seconds(at int64) float64 { return float64(at-r.Began) / 1e9 }

// String is "right", "wrong" or "nothing was said", with the innocents that were named.
func (s Score) String() string {
	text := "wrong"
	switch {
	case s.Right:
		text = "right"
	case !s.Named:
		text = "nobody is named"
	}
	if len(s.Innocents) > 0 {
		text += ", and innocent are " + words.Ranks(s.Innocents)
	}
	return text
}

package postmortem

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// Options choose the job that is read, and what of it is shown. The zero value shows all of the last job.
//
// Comm and Ranks filter the events and the operations done; Last and Since filter only the events, as counters have no
// times. Findings are from all tapes.
type Options struct {
	// Job chooses the job; empty is the one that wrote last.
	Job string
	// Run chooses among the runs of the job, from 1; 0 is the last, and a negative number takes all together.
	Run int

	// Last bounds the events that are shown; 0 shows all that the other filters leave.
	Last int
	// Since leaves out the events that are older than this when the tapes end; 0 leaves out none.
	Since time.Duration
	// Comm leaves out the events and the operations of other communicators: a name, or the beginning of an id of at
	// least 4 digits. Empty leaves out none.
	Comm string
	// At is the time at which the job is judged, on the clock of the first host, and within what the tapes cover. If it
	// is zero, the job is judged before the first trouble, after it, and at the end, until there is a verdict. A time
	// in the year 0 is a time of the job's day, in UTC.
	At time.Time
	// Ranks leaves out the events and the operations of other ranks of the job; empty leaves out none.
	Ranks []int
}

// validate names the field that can't be used.
func (o *Options) validate() error {
	switch least := slices.Min(append([]int{0}, o.Ranks...)); {
	case o.Last < 0:
		return fmt.Errorf("postmortem: Options.Last is %d, allowed is 0 or more", o.Last)
	case o.Since < 0:
		return fmt.Errorf("postmortem: Options.Since is %v, allowed is 0 or more", o.Since)
	case least < 0:
		return fmt.Errorf("postmortem: Options.Ranks has %d, allowed is 0 or more", least)
	}
	return nil
}

// wants tells whether Comm asks for the member.
func (o *Options) wants(m *member) bool {
	if o.Comm == "" || m.Name == o.Comm {
		return true
	}
	return len(o.Comm) >= 4 && strings.HasPrefix(m.ID.String(), strings.ToLower(o.Comm))
}

// noTapesError is an os.ErrNotExist: the folders have no tape.
type noTapesError struct{ in string }

func (e noTapesError) Error() string { return "postmortem: no tapes (files named *.tape) in " + e.in }

func (noTapesError) Is(target error) bool { return target == os.ErrNotExist }

// Read reads the tapes at paths, which are files, or folders with tapes at any depth, and makes the report of one job.
// Tapes that can't be read are Report.Problems. It is an error if a path isn't there, if there are no tapes at all
// (os.ErrNotExist), if Options are invalid, or if the job isn't there. It takes some 20 ms of a core for a full tape of
// default size, and as much again for each moment at which the job is judged, at most twice MaxHeld and three.
func Read(paths []string, opts Options) (*Report, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	r := &Report{Problems: []Problem{}}
	files, notes, err := r.list(paths)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, noTapesError{words.Line(strings.Join(paths, ", ")) + listed(r.Problems)}
	}
	procs := r.load(files, &opts)
	if len(procs) == 0 {
		return nil, fmt.Errorf("postmortem: none of %s is a tape that can be read:%s", count(len(files), "file"),
			listed(r.Problems))
	}
	procs = r.dropCopies(procs)
	ledgers := r.readLedgers(notes)
	ends(procs, ledgers)
	var byName map[string][]*process
	r.Jobs, byName = jobs(procs)
	switch {
	case opts.Job == "":
		procs = byName[r.Jobs[0].Name]
		r.latest = len(r.Jobs) > 1
	case byName[opts.Job] == nil:
		return nil, jobsError(opts.Job, r.Jobs)
	default:
		procs = byName[opts.Job]
	}
	r.Job = procs[0].header.Job
	if procs, err = r.choose(procs, opts.Run); err != nil {
		return nil, err
	}
	r.endings(procs, ledgers)
	return r, r.build(procs, &opts)
}

// listed is a list of problems below an error.
func listed(problems []Problem) string {
	const most = 8
	var b strings.Builder
	for i, p := range problems {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(problems)-most)
			break
		}
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// choose picks one run of the job.
func (r *Report) choose(procs []*process, run int) ([]*process, error) {
	if run < 0 {
		return procs, nil
	}
	all := runs(procs)
	if run > len(all) {
		return nil, fmt.Errorf("postmortem: there is no run %d of the job; there %s %d",
			run, english.PluralWord(len(all), "is", "are"), len(all))
	}
	if run == 0 {
		run = len(all)
	}
	r.run, r.OtherRuns = run, len(all)-1
	for _, p := range all[run-1] {
		r.Run = cmp.Or(r.Run, p.header.Run)
	}
	return all[run-1], nil
}

// build fills in the report from the processes.
func (r *Report) build(procs []*process, opts *Options) error {
	slices.SortStableFunc(procs, func(a, b *process) int {
		return cmp.Or(cmp.Compare(uint(a.rank), uint(b.rank)), a.header.Created.Compare(b.header.Created),
			cmp.Compare(a.path, b.path))
	})
	r.procs = procs
	cs := r.clocks()
	for i, p := range procs {
		p.index = i
		r.Missed += p.missed
		if p.first != 0 {
			r.Begin, r.End = earlier(r.Begin, p.at(p.first)), later(r.End, p.at(p.lastSeen()))
		}
	}
	for _, c := range cs {
		r.Clocks = append(r.Clocks, c.Clock)
	}
	r.join()
	r.notice()
	r.sweep()
	r.terminated()
	r.killed()
	r.Comms = r.reportComms()
	if err := r.judge(opts); err != nil {
		return err
	}
	for _, p := range procs {
		r.Processes = append(r.Processes, r.process(p, cs))
	}
	r.Done, r.timed = allDone(procs, opts), opts.Since > 0
	r.Events = timeline(procs, r.End, opts)
	r.unmatched(opts)
	for _, p := range procs {
		if len(opts.Ranks) > 0 && p.severalRanks && len(p.tallies) > 0 {
			r.problem(p.path,
				"is of several ranks, and doesn't say which did how much: its counts are left out")
		}
	}
	return nil
}

// judge fills in Findings, Ended, Mistakes and Held.
func (r *Report) judge(opts *Options) error {
	moments, at := r.moments(), opts.At
	if !at.IsZero() {
		if at.Year() == 0 {
			at = onDayOf(r.Begin.UTC(), r.covered(), at)
		}
		if at.Before(r.Begin) || at.After(r.covered()) {
			return fmt.Errorf("postmortem: the tapes don't cover %s, but %s to %s", at.UTC().Format(time.RFC3339Nano),
				r.Begin.UTC().Format(time.RFC3339Nano), r.covered().UTC().Format(time.RFC3339Nano))
		}
		r.at = at.UTC()
		moments = []moment{momentAt(r.at)}
	}
	found, when := r.find(moments)
	r.Findings = append([]Finding{}, found...) // never nil: JSON has a list
	r.Mistakes = r.mistakes()
	var heldUp []moment
	if opts.At.IsZero() {
		heldUp = r.heldMoments()
	}
	for _, m := range heldUp {
		held, _ := r.find([]moment{m})
		for _, f := range held {
			known := func(o Finding) bool { return o.ID == f.ID || o.refutes(&f) }
			if (f.Urgent() || straggles(f)) && !r.endedFromOutside(&f) && !slices.ContainsFunc(r.Findings, known) &&
				!slices.ContainsFunc(r.Held, known) {
				r.Held = append(r.Held, f)
			}
		}
	}
	r.Ended = r.ending(when)
	return nil
}

// endedFromOutside reports whether a finding is that processes were told to end by a signal, or were killed with the
// job, which held up no rank.
func (r *Report) endedFromOutside(f *Finding) bool {
	ended := func(p *process) bool {
		return p.end.exit.Told() || asked(p.end.exit.Signal) && p.end.signaled > 0 && p.end.signaled <= p.end.at
	}
	return f.Reason == verdict.RankDead && !slices.ContainsFunc(f.Culprits, func(c verdict.Rank) bool {
		return !slices.ContainsFunc(r.procs, func(p *process) bool { return p.is(c) && ended(p) })
	})
}

// is tells whether a rank, as a verdict names it, is the process's.
func (p *process) is(rank verdict.Rank) bool {
	return p.header.KnownPID() == rank.PID && words.Line(p.header.Host) == rank.Host
}

// onDayOf is the first time of that hour, minute and so on between begin and end; without one, that of begin's day.
func onDayOf(begin, end, clock time.Time) time.Time {
	at := time.Date(begin.Year(), begin.Month(), begin.Day(), clock.Hour(), clock.Minute(), clock.Second(),
		clock.Nanosecond(), time.UTC)
	if next := at.AddDate(0, 0, 1); at.Before(begin) && !next.After(end) {
		return next
	}
	return at
}

// unmatched adds a Problem for each filter that matches nothing.
func (r *Report) unmatched(opts *Options) {
	ranks := make(map[int]bool)
	var names []string
	found := opts.Comm == ""
	for _, p := range r.procs {
		ranks[p.rank] = true
		for _, m := range p.members {
			ranks[m.jobRank()] = true
			found = found || opts.wants(m)
			if name := m.name(); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if !found {
		const most = 8
		if more := len(names) - most; more > 0 {
			names = append(names[:most], fmt.Sprintf("%d more", more))
		}
		text := "there is none"
		if len(names) > 0 {
			text = "there are: " + strings.Join(names, ", ")
		}
		r.problem("", "No communicator is called %q or has an id that begins so; %s.", opts.Comm, text)
	}
	for _, rank := range opts.Ranks {
		if !ranks[rank] {
			r.problem("", "There is no tape of rank %d.", rank)
		}
	}
}

package postmortem

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TextOptions say how Write writes.
type TextOptions struct {
	// Width is how many columns there are; 0 is 120, and tables may be wider.
	Width int
	// Color uses a terminal's colours.
	Color bool
}

// The most items that are shown of a list; the JSON has all.
const (
	maxFindings  = 20
	maxHeldShown = 3
	maxMistakes  = 6
	maxProblems  = 20
	maxRows      = 256
	maxKinds     = 20
	textWidth    = 120
	minWidth     = 40
)

// Write writes the report for a person: the answer first, then each communicator's ranks side by side, then the events.
// Whatever the tapes hold, it writes no control characters except line feeds and, with opts.Color, colours. The error
// is w's.
func (r *Report) Write(w io.Writer, opts TextOptions) error {
	out := bufio.NewWriter(w)
	t := &text{w: out, color: opts.Color, width: textWidth}
	if opts.Width != 0 {
		t.width = max(opts.Width, minWidth)
		t.limit = t.width
	}
	r.writeHead(t)
	r.writeFindings(t)
	r.writeProcesses(t)
	var idle []*Comm
	for i := range r.Comms {
		if c := &r.Comms[i]; c.idle() && len(r.Comms) > 1 {
			idle = append(idle, c)
		} else {
			r.writeComm(t, c)
		}
	}
	r.writeIdle(t, idle)
	r.writeDone(t)
	r.writeClocks(t)
	r.writeEvents(t)
	r.writeNotes(t)
	return out.Flush()
}

func (r *Report) writeHead(t *text) {
	states := make(map[ProcessState]int)
	hosts := make(map[string]bool)
	for i := range r.Processes {
		states[r.Processes[i].State]++
		hosts[r.Processes[i].Host] = true
	}
	var parts []string
	for _, s := range []ProcessState{StateDied, StateExited, StateAlive, StateClosed, StateUnknown} {
		if n := states[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, stateText(s)))
		}
	}
	job := words.Line(r.Job)
	if r.Run != 0 {
		job += ", run " + r.Run.String()
	}
	t.paragraph("", fmt.Sprintf("job %s: %s on %s: %s", job, count(len(r.Processes), "tape"),
		count(len(hosts), "host"), strings.Join(parts, ", ")))
	if !r.Begin.IsZero() {
		t.paragraph("", fmt.Sprintf("written from %s to %s UTC, %s", r.Begin.Format("2006-01-02 15:04:05.000"),
			r.End.Format("15:04:05.000"), span(int64(r.End.Sub(r.Begin)))))
	}
}

// ended is the state of a process's ranks, if it ended without ending its communicators.
func (s ProcessState) ended() string {
	if s == StateExited {
		return "exited"
	}
	return "dead"
}

func stateText(s ProcessState) string {
	if s == StateUnknown {
		return "not closed"
	}
	return string(s)
}

func (r *Report) writeFindings(t *text) {
	t.heading("WHAT HAPPENED")
	then := r.Ended.then
	switch well := r.Ended.How == "running" || r.Ended.How == "completed"; {
	case !r.at.IsZero() && len(r.Findings) == 0:
		t.paragraph("  ", fmt.Sprintf("At %s, nothing is known to have held the job up for longer than its thresholds.",
			clockTime(r.at)))
	case !r.at.IsZero():
		t.paragraph("  ", fmt.Sprintf("This is how it was at %s.", clockTime(r.at)))
	case !well || r.Ended.lead != "" || len(r.Findings) == 0: // else the findings come first
		t.paragraph("  ", words.Line(cmp.Or(r.Ended.lead, r.Ended.Text)))
	}
	shown := r.Findings[:min(len(r.Findings), maxFindings)]
	later := slices.IndexFunc(shown, func(f Finding) bool { return f.later })
	if later < 0 {
		later = len(shown)
	}
	for i := range shown[:later] {
		shown[i].write(t, "")
	}
	if then != "" && r.at.IsZero() {
		stop := "."
		if later < len(shown) {
			stop = ":"
		}
		t.paragraph("  ", words.Line(then)+stop)
	}
	for _, f := range shown[later:] {
		before := ""
		if then == "" {
			before = "At " + clockTime(f.At) + ": "
		}
		f.write(t, before)
	}
	t.more(len(r.Findings)-maxFindings, "")
	for i := range r.Held[:min(len(r.Held), maxHeldShown)] {
		r.Held[i].write(t, "The job was held up at "+clockTime(r.Held[i].At)+": ")
	}
	t.more(len(r.Held)-maxHeldShown, "time")
	for i := range r.Mistakes[:min(len(r.Mistakes), maxMistakes)] {
		t.paint(yellow, func() { t.paragraph("  ", r.Mistakes[i].mistake()) })
	}
	t.more(len(r.Mistakes)-maxMistakes, "mistake")
	if gap := r.gap(); gap != "" {
		t.paint(yellow, func() { t.paragraph("  ", gap) })
	}
}

// write writes the verdict and its evidence.
func (f *Finding) write(t *text, before string) {
	color := yellow
	if f.Urgent() && (before == "" || f.later) {
		color = red
	}
	t.paint(color, func() {
		t.paragraph("  ", before+fmt.Sprintf("%s (%s): %s.", f.Reason, f.Confidence, words.Line(f.Text.String())))
	})
	for _, e := range f.Evidence {
		t.paragraph("    - ", words.Line(e.String()))
	}
}

// mistake is the sentence about a refused call.
func (s *Said) mistake() string {
	text := capital(words.Ranks(s.Ranks)) + ": " + s.Text
	if s.Site != "" {
		text += " (at " + s.Site
		if s.First != "" {
			text += "; the call that rules it out: " + s.First
		}
		text += ")"
	}
	if s.Times > 1 {
		some := "%d such calls in all"
		if s.least {
			some = "at least " + some
		}
		text += fmt.Sprintf("; "+some, s.Times)
	}
	return words.Line(text) + "."
}

// complete tells whether there is a tape of each process of the job: then ranks without one have not come.
func (r *Report) complete() bool {
	ranks := map[int]bool{}
	for _, p := range r.procs {
		if p.rank >= 0 {
			ranks[p.rank] = true
		}
	}
	return r.size > 0 && len(ranks) >= r.size && len(r.emptiedTapes()) == 0
}

// gap says which tapes are missing, of the communicator that misses most, and which don't cover Options.At; empty if
// none. The findings may be incomplete then.
func (r *Report) gap() string {
	var gaps, late []string
	for _, p := range r.procs {
		if !r.at.IsZero() && p.mono(r.at) < p.from {
			late = append(late, p.name())
		}
	}
	if len(late) > 0 {
		gaps = append(gaps,
			fmt.Sprintf("What %s did then is not known: the records of that time have been overwritten.",
				words.List(late)))
	}
	var worst *Comm
	for i := range r.Comms {
		if c := &r.Comms[i]; c.untaped() && (worst == nil || c.NumAbsent > worst.NumAbsent) {
			worst = c
		}
	}
	if worst != nil {
		gaps = append(gaps, fmt.Sprintf("There is no tape of %s of %s: what is missing may matter.", worst.absentText(),
			commName(worst.Name, worst.ID)))
		if emptied := r.emptiedTapes(); len(emptied) > 0 {
			gaps = append(gaps, fmt.Sprintf("Somebody truncated %s.", words.List(emptied)))
		}
	}
	return strings.Join(gaps, " ")
}

// emptiedTapes are the names of truncated tapes beside the job's.
func (r *Report) emptiedTapes() (names []string) {
	for _, path := range r.emptied {
		if slices.ContainsFunc(r.procs, func(p *process) bool { return filepath.Dir(p.path) == filepath.Dir(path) }) {
			names = append(names, words.Line(filepath.Base(path)))
		}
	}
	return names
}

// absentText names the ranks without a tape.
func (c *Comm) absentText() string {
	who := words.Ranks(c.Absent)
	if more := c.NumAbsent - len(c.Absent); more > 0 {
		who += " and " + number(uint64(more)) + " more"
	}
	return who
}

func rankText(rank int) string {
	if rank < 0 {
		return "-"
	}
	return strconv.Itoa(rank)
}

func (r *Report) writeProcesses(t *text) {
	t.heading("PROCESSES")
	rows := [][]string{{"RANK", "HOST", "PID", "STATE", "ENDED", "LAST WROTE", "IN"}}
	for i := range r.Processes {
		p := &r.Processes[i]
		in := "-"
		if len(p.Doing) > 0 {
			d := &p.Doing[0]
			in = numbered(d.Call, d.Seq) + " of " + commName(d.Comm, d.CommID)
			if len(p.Doing) > 1 {
				in += fmt.Sprintf(" and %d more", len(p.Doing)-1)
			}
		}
		rank := rankText(p.Rank)
		if len(p.Ranks) > 0 {
			rank = words.Numbers(p.Ranks)
		}
		state := stateText(p.State)
		if p.State == StateExited {
			state = strings.TrimPrefix(p.Ended, "it ")
		} else if p.Ended != "" {
			state += ": " + p.Ended
		}
		ended := "-"
		if !p.EndedAt.IsZero() {
			ended = clockTime(p.EndedAt)
		}
		rows = append(rows, []string{rank, p.Host, strconv.Itoa(p.PID), state, ended, clockTime(p.Last), in})
	}
	t.table(rows, maxRows)
}

func (r *Report) writeComm(t *text, c *Comm) {
	head := "COMMUNICATOR " + commName(c.Name, c.ID)
	if c.Name != "" {
		head += " (" + c.ID.Short() + ")"
	}
	head += ": "
	if c.Size == 0 {
		head += "being made"
	} else {
		head += count(c.Size, "rank")
	}
	if c.Nodes > 1 {
		head += fmt.Sprintf(" on %d nodes", c.Nodes)
	}
	if c.Engine != "" && c.Engine != "host" {
		head += ", engine " + words.Line(c.Engine)
	}
	t.heading(head)
	rows := [][]string{{"RANK", "IN JOB", "STATE", "OPERATIONS", "COLLECTIVE", "IN", "FOR", "PHASE", "WAITS FOR"}}
	for i := range c.Ranks {
		k := &c.Ranks[i]
		state := k.State
		if k.Dead {
			state = r.Processes[k.Process].State.ended()
			if k.State != lifecycle.StateNone.String() {
				state += ", was " + k.State
			}
		}
		row := []string{rankText(k.Rank), "", state, number(k.Operations), number(k.Begun), "-", "", "", ""}
		if rank := r.Processes[k.Process].Rank; rank != k.Rank && rank >= 0 {
			row[1] = strconv.Itoa(rank)
		}
		if d := k.Doing; d != nil {
			row[5], row[6], row[7] = numbered(d.Call, d.Seq), span(int64(d.For)), d.Phase
			if d.least {
				row[6] = "≥ " + row[6]
			}
			if d.What != "" {
				row[5] += " (" + d.What + ")"
			}
			if d.Wait >= 0 {
				row[8] = "rank " + strconv.Itoa(d.Wait)
				if job := r.inJob(c, d.Wait); job != d.Wait {
					row[8] += fmt.Sprintf(" (%d in job)", job)
				}
			}
		}
		rows = append(rows, row)
	}
	t.table(rows, maxRows)
	switch {
	case c.NumAbsent == 0:
	case c.unjoined:
		t.paragraph("  ", fmt.Sprintf("No process is known to have joined it as %s.", c.absentText()))
	default:
		t.paragraph("  ", fmt.Sprintf("No tape of %s.", c.absentText()))
	}
	if c.Captured > 0 {
		t.paragraph("  ", capital(words.Captured(c.Captured))+".")
	}
}

// inJob is the rank in the job of a communicator's rank, if it is known; else the same number.
func (r *Report) inJob(c *Comm, rank int) int {
	i := slices.IndexFunc(c.Ranks, func(k Rank) bool { return k.Rank == rank && r.Processes[k.Process].Rank >= 0 })
	if i < 0 {
		return rank
	}
	return r.Processes[c.Ranks[i].Process].Rank
}

// idle tells whether all ranks of the communicator have tapes, are in one state and in no call: a line is enough.
func (c *Comm) idle() bool {
	for i := range c.Ranks {
		k := &c.Ranks[i]
		if k.Dead || k.Doing != nil || k.State != c.Ranks[0].State || k.Begun != c.Ranks[0].Begun {
			return false
		}
	}
	return c.NumAbsent == 0
}

func (r *Report) writeIdle(t *text, comms []*Comm) {
	if len(comms) == 0 {
		return
	}
	t.heading("IDLE COMMUNICATORS")
	rows := [][]string{{"COMMUNICATOR", "ID", "RANKS", "STATE", "OPERATIONS"}}
	for _, c := range comms {
		rows = append(rows, []string{
			cmp.Or(c.Name, "-"), c.ID.Short(), strconv.Itoa(c.Size), c.Ranks[0].State,
			number(c.Operations),
		})
	}
	t.table(rows, maxRows)
	captured := slices.DeleteFunc(comms, func(c *Comm) bool { return c.Captured == 0 })
	for _, c := range captured[:min(len(captured), maxKinds)] {
		t.paragraph("  ", fmt.Sprintf("%s: %s.", commName(c.Name, c.ID), words.Captured(c.Captured)))
	}
	t.more(len(captured)-maxKinds, "communicator")
}

func (r *Report) writeDone(t *text) {
	if len(r.Done) == 0 {
		return
	}
	t.heading("COMPLETED OPERATIONS")
	engines, enqueued := make(map[string]bool), false
	for i := range r.Done {
		engine := tape.CommInfo{Engine: r.Done[i].Engine}
		engines[engine.Engine], enqueued = true, enqueued || engine.Enqueues()
	}
	rows := [][]string{{
		"COMMUNICATOR", "ENGINE", "CALL", "SIZE", "OPERATIONS", "MEAN", "MEDIAN", "99 %",
		"LEAST TOTAL TIME", "MOST TOTAL TIME", "BUS BANDWIDTH", "TOTAL BYTES",
	}}
	for i := range r.Done {
		d := &r.Done[i]
		row := []string{
			cmp.Or(d.Comm, "-"), "", d.Call, sizeText(d.UpTo), d.each(), span(int64(d.Mean)), atMost(d.Median),
			atMost(d.P99), "", "", "", "",
		}
		if len(engines) > 1 {
			row[1] = cmp.Or(d.Engine, "-")
		}
		byTime := func(a, b DoneBy) int { return cmp.Compare(a.Time, b.Time) }
		least, most := slices.MinFunc(d.Ranks, byTime), slices.MaxFunc(d.Ranks, byTime)
		if span(int64(least.Time)) != span(int64(most.Time)) {
			row[8], row[9] = least.text(), most.text()
		}
		if d.Bandwidth > 0 {
			row[10] = humanize.SIWithDigits(d.Bandwidth, 2, "B/s")
		}
		if d.Bytes > 0 {
			row[11] = humanize.IBytes(d.Bytes)
		}
		rows = append(rows, row)
	}
	t.table(rows, maxKinds)
	if enqueued {
		t.paragraph("  ", "On a GPU, a call only enqueues an operation on its stream: these are the calls that "+
			"returned, and their times.")
	}
	if r.timed {
		t.paragraph("  ", "These cover the whole run: the counters of ranks have no timestamps.")
	}
}

// each is the number of operations of a rank, or their range.
func (d *Done) each() string {
	byOperations := func(a, b DoneBy) int { return cmp.Compare(a.Operations, b.Operations) }
	least, most := slices.MinFunc(d.Ranks, byOperations), slices.MaxFunc(d.Ranks, byOperations)
	if least.Operations == most.Operations {
		return number(least.Operations)
	}
	return number(least.Operations) + " to " + number(most.Operations)
}

func (b DoneBy) text() string {
	if b.Rank < 0 {
		return span(int64(b.Time))
	}
	return fmt.Sprintf("%s, rank %d", span(int64(b.Time)), b.Rank)
}

func (r *Report) writeClocks(t *text) {
	if len(r.Clocks) < 2 {
		return
	}
	t.heading("CLOCKS")
	rows := [][]string{{"HOST", "TAPES", "WALL CLOCK OFFSET", "UNCERTAINTY", "SOURCE"}}
	for _, c := range r.Clocks {
		give, offset := "?", span(int64(c.Offset))
		if c.Uncertainty >= 0 {
			give = span(int64(c.Uncertainty))
		}
		if c.Source == ClockWall {
			offset = "?"
		}
		rows = append(rows, []string{c.Host, strconv.Itoa(c.Processes), offset, give, string(c.Source)})
	}
	t.table(rows, maxRows)
}

func (r *Report) writeEvents(t *text) {
	if len(r.Events) == 0 {
		return
	}
	if len(r.Events) == 1 {
		t.heading("THE LAST EVENT")
	} else {
		t.heading(fmt.Sprintf("THE LAST %s EVENTS", number(uint64(len(r.Events)))))
	}
	rows := [][]string{{"TIME", "RANK", "COMMUNICATOR", "WHAT"}}
	var day time.Time
	for i := range r.Events {
		e := &r.Events[i]
		at := clockTime(e.Time)
		if d := e.Time.Truncate(24 * time.Hour); i > 0 && !d.Equal(day) {
			at = e.Time.Format("2006-01-02 ") + at
		}
		day = e.Time.Truncate(24 * time.Hour)
		rank, comm := rankText(e.JobRank), commName(e.Comm, e.CommID)
		if e.JobRank != e.Rank && e.Rank >= 0 {
			comm += fmt.Sprintf(" (%d)", e.Rank)
		}
		if e.JobRank < 0 {
			rank = "pid " + strconv.Itoa(r.Processes[e.Process].PID)
		}
		rows = append(rows, []string{at, rank, comm, e.Text})
	}
	t.table(rows, len(rows))
}

func (r *Report) writeNotes(t *text) {
	var notes []string
	if r.latest {
		notes = append(notes, fmt.Sprintf("This is the job that wrote last; there are tapes of %s (--job chooses).",
			count(len(r.Jobs)-1, "other job")))
	}
	if r.OtherRuns > 0 {
		notes = append(notes,
			fmt.Sprintf("This is run %d of %d of the job (--run chooses another).", r.run, r.OtherRuns+1))
	}
	if r.Missed > 0 {
		notes = append(notes, count(int(r.Missed&(1<<62-1)), "older record")+
			" had been overwritten, or cut off; a tape keeps the latest.")
	}
	if len(notes)+len(r.Problems) == 0 {
		return
	}
	t.heading("NOTES")
	for _, n := range notes {
		t.paragraph("  ", n)
	}
	problems := r.FoldedProblems()
	for i := range problems[:min(len(problems), maxProblems)] {
		t.paragraph("  ", problems[i].String())
	}
	t.more(len(problems)-maxProblems, "")
}

// FoldedProblems are the report's problems, those with the same text as one: "a.tape and 3 more: …".
func (r *Report) FoldedProblems() []Problem {
	alike := make(map[string]int)
	var problems []Problem
	for _, p := range r.Problems {
		if alike[p.Text]++; alike[p.Text] == 1 {
			problems = append(problems, p)
		}
	}
	for i := range problems {
		if more := alike[problems[i].Text] - 1; more > 0 {
			problems[i].Path += fmt.Sprintf(" and %d more:", more)
		}
	}
	return problems
}

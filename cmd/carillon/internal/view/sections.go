package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
)

type section struct {
	head line
	rows []line
}

// limits bound the sections on a small screen; 0 means no bound.
type limits struct {
	width    int // columns
	text     int // rows of a verdict's sentence
	evidence int // sentences of a verdict
	ranks    int // ranks with a line of their own
}

const timeOfDay = "15:04:05"

var looks = [...]style{bus.Info: plain, bus.Warning: yellow, bus.Critical: red}

func (r *Report) headline() line {
	l := r.condition()
	if quiet := r.Quiet(); quiet > 0 {
		l = l.say(yellow, ", as of %s ago", ageText(quiet))
	}
	return l
}

func (r *Report) condition() line {
	name := r.Job
	if len(r.Jobs) > 0 {
		name = some(r.Jobs)
	}
	l := line{}.say(bold, "%s", name).say(plain, ": ")
	switch {
	case r.Status == statusOK:
		return l.say(green, "healthy")
	case r.Status == statusUnknown && r.Unwatched != "":
		return l.say(yellow, "not known, since %s", r.Unwatched)
	case r.Status == statusUnknown:
		return l.say(dim, "nothing is known yet")
	case r.Status == statusWarning:
		l = l.say(yellow, "warning")
	case r.Status == statusCritical:
		l = l.say(red, "CRITICAL")
	}
	if n := len(r.Verdicts); n > 0 {
		l = l.say(plain, ", %s open", english.Plural(n, "verdict is", "verdicts are"))
	}
	return l
}

func (r *Report) verdictSection(lim limits) section {
	s := section{head: line{}.say(bold, "VERDICTS")}
	switch {
	case len(r.Verdicts) > 0:
	case r.Unwatched != "":
		s.head = s.head.say(plain, "  no process diagnoses the job: %s", r.Unwatched)
	case r.Status == statusUnknown:
		s.head = s.head.say(plain, "  not known yet")
	default:
		s.head = s.head.say(plain, "  none: nothing is known to hold the job up")
		if slices.ContainsFunc(r.Comms, func(c Comm) bool { return c.Captured > 0 }) {
			s.head = s.head.say(plain, " (replays of CUDA graphs are not seen)")
		}
	}
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		severity := health.SeverityOf(&v.Verdict)
		s.rows = append(s.rows, line{}.say(plain, "  ").
			say(looks[severity], "%s %s", strings.ToUpper(severity.String()), v.Reason).
			say(plain, "%s (%s), open for %s, since %s",
				r.of(v.Job), v.Confidence, ageText(r.Time.Sub(v.Since)), v.Since.Local().Format(timeOfDay)))
		s.rows = append(s.rows, wrap(bold, "    ", v.Text.String(), lim.width, lim.text)...)
		for n, e := range v.Evidence {
			if lim.evidence > 0 && n == lim.evidence {
				s.rows = append(s.rows, line{}.say(dim, "    … %d more", len(v.Evidence)-n))
				break
			}
			rows := wrap(plain, "      ", e.String(), lim.width, lim.text)
			rows[0][0] = piece{dim, "    - "}
			s.rows = append(s.rows, rows...)
		}
	}
	return s
}

// stateStyles are in the order of importance.
var stateStyles = []struct {
	state string
	style style
}{
	{"dead", red}, {"stopped", red}, {"unreachable", red}, {"suspect", yellow}, {stateAlive, plain}, {"left", dim},
}

func (r *Report) rankSection(lim limits) section {
	s := section{head: line{}.say(bold, "RANKS").say(plain, "  %s", r.rankCount())}
	if culprits := r.culprits(); len(culprits) > 0 {
		s.rows = append(s.rows, labelled(red, "culprit", r.ranks(culprits), lim)...)
	}
	others := map[string]bool{} // states that only a later version knows
	for i := range r.Ranks {
		others[r.Ranks[i].State] = true
	}
	for _, st := range stateStyles {
		s.rows = append(s.rows, r.ranksIn(st.state, st.style, lim)...)
		delete(others, st.state)
	}
	for _, state := range slices.Sorted(maps.Keys(others)) {
		s.rows = append(s.rows, r.ranksIn(state, plain, lim)...)
	}
	if len(r.Stale) > 0 {
		s.rows = append(s.rows, labelled(yellow, "stale", StaleText(r.Stale), lim)...)
	}
	return s
}

// jobRank is a rank of a job.
type jobRank struct {
	job  string
	rank int
}

// ranks names ranks: "ranks 0 to 2"; with several jobs, "rank 1 of a, ranks 0 to 2 of b".
func (r *Report) ranks(all []jobRank) string {
	numbers := map[string][]int{}
	for _, k := range all {
		numbers[k.job] = append(numbers[k.job], k.rank)
	}
	parts := make([]string, 0, len(numbers))
	for _, job := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, words.Ranks(numbers[job])+r.of(job))
	}
	return strings.Join(parts, ", ")
}

// of names the job that something belongs to, if there are several jobs.
func (r *Report) of(job string) string {
	if len(r.Jobs) == 0 || job == "" {
		return ""
	}
	return " of " + job
}

// some returns the first few names of a list, and how many more there are.
func some(names []string) string {
	const most = 4
	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", more))
	}
	return english.WordSeries(names, "and")
}

// culprits are the ranks that verdicts name.
func (r *Report) culprits() (ranks []jobRank) {
	for i := range r.Verdicts {
		for _, c := range r.Verdicts[i].Culprits {
			if c.Job >= 0 {
				ranks = append(ranks, jobRank{r.Verdicts[i].Job, c.Job})
			}
		}
	}
	return ranks
}

// known is the number of ranks that have, or had, a known process.
func (r *Report) known() int {
	ranks := map[jobRank]bool{}
	for i := range r.Ranks {
		if n := r.Ranks[i].Rank; n >= 0 {
			ranks[jobRank{r.Ranks[i].Job, n}] = true
		}
	}
	return len(ranks)
}

func (r *Report) rankCount() string {
	hosts := map[string]bool{}
	for i := range r.Ranks {
		if h := r.Ranks[i].Host; h != "" {
			hosts[h] = true
		}
	}
	known := r.known()
	if known == 0 {
		return "not known yet"
	}
	text := fmt.Sprintf("%d", max(r.Size, known))
	if known < r.Size {
		text = fmt.Sprintf("%d of %d are known", known, r.Size)
	}
	if len(hosts) > 0 {
		text += " on " + english.Plural(len(hosts), "host", "")
	}
	return text
}

// ranksIn returns a line for all ranks in a state, and a line for each rank that is neither alive nor has left.
func (r *Report) ranksIn(state string, look style, lim limits) []line {
	var numbers []jobRank
	var names []string // of ranks without a number
	var more []line
	told := 0
	for i := range r.Ranks {
		k := &r.Ranks[i]
		if k.State != state {
			continue
		}
		process := k.Process()
		name := process
		if k.Rank >= 0 {
			numbers, name = append(numbers, jobRank{k.Job, k.Rank}), fmt.Sprintf("rank %d%s", k.Rank, r.of(k.Job))
		} else {
			names = append(names, name)
		}
		if k.State == stateAlive || k.State == "left" {
			continue
		}
		if told++; lim.ranks > 0 && told > lim.ranks {
			continue
		}
		l := line{}.say(plain, "    %s", name)
		if process != "" && process != name {
			l = l.say(plain, " (%s)", process)
		}
		if k.Text != "" {
			l = l.say(plain, ": %s", k.Text)
		}
		if !k.Since.IsZero() {
			l = l.say(dim, ", %s ago", ageText(r.Time.Sub(k.Since)))
		}
		more = append(more, l)
	}
	if len(numbers) > 0 {
		names = slices.Insert(names, 0, r.ranks(numbers))
	}
	if len(names) == 0 {
		return nil
	}
	if lim.ranks > 0 && told > lim.ranks {
		more = append(more, line{}.say(dim, "    … %d more", told-lim.ranks))
	}
	return append(labelled(look, state, strings.Join(names, ", "), lim), more...)
}

func labelled(look style, label, text string, lim limits) []line {
	rows := wrap(plain, "              ", text, lim.width, lim.text)
	rows[0] = append(line{}.say(look, "  %-11s ", label), rows[0][1:]...)
	return rows
}

func (r *Report) commSection(lim limits) section {
	busy := 0
	for i := range r.Comms {
		if !r.Comms[i].idle() {
			busy++
		}
	}
	s := section{head: line{}.say(bold, "COMMUNICATORS").say(plain, "  %d, %d busy", len(r.Comms), busy)}
	for i := range r.Comms {
		c := &r.Comms[i]
		if i >= busy && c.Captured == 0 { // the busy ones come first
			continue
		}
		head := line{}.say(plain, "  ").say(bold, "%s", NameOf(c.Name, c.ID))
		if c.Name != "" {
			head = head.say(dim, "  %s", c.ID.Short())
		}
		if c.Size == 0 {
			head = head.say(plain, "%s  ", r.of(c.Job)).say(yellow, "is being created by %s", words.Ranks(c.Known))
			s.rows = append(s.rows, head)
			continue
		}
		head = head.say(plain, "%s  %s", r.of(c.Job), english.Plural(c.Size, "rank", ""))
		if len(c.Known) < c.Size {
			head = head.say(dim, ", %d of them seen from here", len(c.Known))
		}
		if len(c.JobRanks) > 0 {
			head = head.say(plain, ": the job's %s", words.Ranks(c.JobRanks))
		}
		if len(c.Stale) > 0 {
			head = head.say(yellow, ", of %s as it was %s ago", c.ranks(c.Stale), ageText(seconds(c.StaleAge)))
		}
		for _, st := range c.States {
			if st.State != lifecycle.StateReady.String() {
				head = head.say(yellow, ", %s", st.State)
				if len(st.Ranks) < len(c.Known) {
					head = head.say(plain, " on %s", c.ranks(st.Ranks))
				}
			}
		}
		if c.Captured > 0 {
			head = head.say(plain, ", %s", words.Captured(c.Captured))
		}
		s.rows = append(s.rows, head)
		for n := range c.Busy {
			s.rows = append(s.rows, wrap(plain, "    ", c.told(n), lim.width, lim.text)...)
		}
	}
	return s
}

func (c *Comm) told(n int) string {
	o := &c.Busy[n]
	var b strings.Builder
	b.WriteString(o.Call)
	if !slices.Contains(acts, o.Call) {
		fmt.Fprintf(&b, " %d", o.Seq)
	}
	if o.Bytes > 0 {
		fmt.Fprintf(&b, ", %s", humanize.IBytes(o.Bytes))
	}
	fmt.Fprintf(&b, ", for %s: ", ageText(seconds(o.Age)))
	if len(o.Ranks) == c.Size {
		b.WriteString("all ranks")
	} else {
		b.WriteString(c.ranks(o.Ranks))
	}
	if len(o.WaitsFor) > 0 {
		fmt.Fprintf(&b, "; waiting for %s", c.ranks(o.WaitsFor))
	}
	if n == 0 && len(c.Behind) > 0 {
		fmt.Fprintf(&b, "; not begun by %s", c.ranks(c.Behind))
	}
	return b.String()
}

func (r *Report) conditionSection(lim limits) section {
	s := section{head: line{}.say(bold, "CONDITIONS")}
	for i := range r.Conditions {
		c := &r.Conditions[i]
		if c.Silent() {
			continue
		}
		head := line{}.say(plain, "  ").say(looks[c.Severity], "%s %s", strings.ToUpper(c.Severity.String()), c.Code)
		if c.Subject != "" {
			head = head.say(plain, " (%s)", c.Subject)
		}
		head = head.say(dim, " on %s, since %s", words.Ranks(c.Ranks), c.Since.Local().Format(timeOfDay))
		if c.StaleAge > 0 {
			head = head.say(yellow, ", as it was %s ago", ageText(seconds(c.StaleAge)))
		}
		s.rows = append(s.rows, head)
		s.rows = append(s.rows, wrap(plain, "    ", c.Text, lim.width, lim.text)...)
		if c.Advice != "" {
			s.rows = append(s.rows, wrap(dim, "    ", c.Advice, lim.width, lim.text)...)
		}
	}
	return s
}

func (r *Report) problemSection(lim limits) section {
	s := section{head: line{}.say(bold, "NOT KNOWN")}
	for _, p := range r.Problems {
		s.rows = append(s.rows, wrap(dim, "  ", p, lim.width, lim.text)...)
	}
	return s
}

func (r *Report) sections(lim limits) []section {
	all := []section{r.verdictSection(lim), r.rankSection(lim), r.commSection(lim)}
	for _, s := range []section{r.conditionSection(lim), r.problemSection(lim)} {
		if len(s.rows) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// Text is the report for a person, in lines of at most width columns; width 0 breaks no lines.
func (r *Report) Text(width int, colored bool) string {
	var b strings.Builder
	put := func(l line) { b.WriteString(l.render(0, colored) + "\n") }
	put(append(r.noun(), r.headline()...))
	for _, s := range r.sections(limits{width: width}) {
		b.WriteByte('\n')
		put(s.head)
		for _, row := range s.rows {
			put(row)
		}
	}
	return b.String()
}

// Summary is the state of the job on one line.
func (r *Report) Summary() string {
	return r.noun().say(plain, "%s", r.headline().render(0, false)).say(plain, ", %s",
		english.Plural(max(r.Size, r.known()), "rank", "")).render(0, false)
}

// noun is the word before the headline.
func (r *Report) noun() line {
	if len(r.Jobs) > 0 {
		return line{{plain, "jobs "}}
	}
	return line{{plain, "job "}}
}

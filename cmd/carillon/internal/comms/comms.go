// Package comms tells what the communicators of a job did, from the tapes of its processes, dead or alive: a line for
// each communicator, and the trace of each act.
package comms

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// Comm is what the tapes say of one communicator, over all its ranks.
type Comm struct {
	ID         lifecycle.CommID `json:"id"`
	Parent     lifecycle.CommID `json:"parent"`
	Name       string           `json:"name"`
	Size       int              `json:"size"`
	Nodes      int              `json:"nodes"`
	Ranks      []Rank           `json:"ranks"`
	Acts       []Act            `json:"acts"`
	Operations uint64           `json:"operations"` // the most that any rank completed
	made       time.Time        // by the first rank
	acts       map[actKey]*Act  // in Acts at the end
	ranks      []*Rank          // in Ranks at the end
}

// Rank is one rank of a communicator.
type Rank struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	State string `json:"state"`
	Ops   uint64 `json:"operations"`
}

// Act is a lifecycle act, over the ranks that took part.
type Act struct {
	Act     string        `json:"act"`
	Seq     uint64        `json:"seq"`
	TraceID string        `json:"trace_id"`
	Ranks   int           `json:"ranks"`
	Longest time.Duration `json:"longest_ns"` // from start to end on the slowest rank
	Errors  []Problem     `json:"errors,omitempty"`
	start   time.Time
}

// Problem is one error, as the first rank told it that met it.
type Problem struct {
	Code  string `json:"code"`
	Text  string `json:"text"`
	Ranks []int  `json:"ranks"` // that met it
	peer  int32  // at fault; -1 if none
}

type actKey struct {
	act tape.Act
	seq uint64
}

// Report is a whole job.
type Report struct {
	Dir    string   `json:"dir"`
	Tapes  int      `json:"tapes"`
	Comms  []*Comm  `json:"communicators"`
	Missed uint64   `json:"records_overwritten"` // gone from the rings before they were read
	Broken []string `json:"broken,omitempty"`    // tapes that could not be read, and why
}

// Read reads all tapes below dir.
func Read(dir string) (*Report, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Ext(path) == ".tape" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no tapes (files named *.tape) in %s: %w", dir, os.ErrNotExist)
	}
	r := &reading{report: Report{Dir: dir}, comms: map[lifecycle.CommID]*Comm{}}
	for _, path := range paths {
		if err := r.tape(path); err != nil {
			r.report.Broken = append(r.report.Broken, err.Error())
		}
	}
	return r.finish(), nil
}

type reading struct {
	report Report
	comms  map[lifecycle.CommID]*Comm
}

func (r *reading) tape(path string) error {
	t, err := tape.Open(path)
	if err != nil {
		return err
	}
	defer t.Close() //nolint:errcheck // only read from
	r.report.Tapes++
	h := t.Header()
	ranks := map[uint32]*Rank{} // by the number that a communicator has in its process
	for e, err := range t.Events() {
		if err != nil {
			return err
		}
		if e.Comm.ID.IsZero() {
			continue
		}
		c := r.comm(e.Comm)
		rank := ranks[e.Generation]
		if rank == nil {
			rank = &Rank{Host: h.Host, PID: h.PID}
			ranks[e.Generation] = rank
			c.ranks = append(c.ranks, rank)
		}
		rank.Rank = e.Comm.Rank // a child of a split learns it late
		if e.IsLife {
			c.life(h, rank, e.Life)
		} else if e.Op.Stage == tape.StageEnd {
			rank.Ops = max(rank.Ops, e.Op.Seq)
		}
	}
	if died := !h.Closed && t.Liveness() == tape.Dead; died {
		for _, rank := range ranks {
			if rank.State != lifecycle.StateDestroyed.String() && rank.State != lifecycle.StateAborted.String() {
				rank.State = deadPrefix + rank.State
			}
		}
	}
	missed := t.Missed()
	r.report.Missed += missed.Life + missed.Op
	return nil
}

func (r *reading) comm(info tape.CommInfo) *Comm {
	c := r.comms[info.ID]
	if c == nil {
		c = &Comm{ID: info.ID, Parent: info.Parent, acts: map[actKey]*Act{}}
		r.comms[info.ID] = c
	}
	c.Name = info.Name
	c.Size, c.Nodes = max(c.Size, info.Size), max(c.Nodes, info.Nodes)
	return c
}

func (c *Comm) life(h tape.Header, rank *Rank, l tape.LifeRecord) {
	at := h.Wall(l.Time)
	if c.made.IsZero() || at.Before(c.made) {
		c.made = at
	}
	if l.State != lifecycle.StateNone {
		rank.State = l.State.String()
	}
	if l.Act == tape.ActNone {
		if l.Code != lifecycle.CodeOK {
			a := c.act(actKey{tape.ActNone, 0}, at)
			a.problem(rank.Rank, &l)
		}
		return
	}
	a := c.act(actKey{l.Act, l.Seq}, at)
	switch l.Stage { //nolint:exhaustive // phases are on the spans
	case tape.StageStart:
		a.Ranks++
	case tape.StageEnd:
		a.Longest = max(a.Longest, time.Duration(l.Time-l.Start))
		if l.Code != lifecycle.CodeOK {
			a.problem(rank.Rank, &l)
		}
	case tape.StageMisuse:
		if l.Code != lifecycle.CodeInProgress { // put off, which is no error
			a.problem(rank.Rank, &l)
		}
	}
}

// problem adds an error. Ranks that blame the same rank for the same thing have one.
func (a *Act) problem(rank int, l *tape.LifeRecord) {
	for i := range a.Errors {
		if p := &a.Errors[i]; p.Code == l.Code.String() && p.peer == l.Peer && l.Peer >= 0 {
			p.Ranks = append(p.Ranks, rank)
			return
		}
	}
	a.Errors = append(a.Errors, Problem{Code: l.Code.String(), Text: l.Text, Ranks: []int{rank}, peer: l.Peer})
}

func (c *Comm) act(k actKey, at time.Time) *Act {
	a := c.acts[k]
	if a == nil {
		a = &Act{Act: k.act.String(), Seq: k.seq, start: at}
		if k.act == tape.ActNone {
			a.Act = "operation"
		} else {
			a.TraceID = trace.ActTraceID(c.ID, k.act, k.seq).String()
		}
		c.acts[k] = a
	}
	if at.Before(a.start) {
		a.start = at
	}
	return a
}

func (r *reading) finish() *Report {
	for _, c := range r.comms {
		for _, p := range c.ranks {
			c.Ranks = append(c.Ranks, *p)
			c.Operations = max(c.Operations, p.Ops)
		}
		slices.SortFunc(c.Ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
		for _, a := range c.acts {
			c.Acts = append(c.Acts, *a)
		}
		slices.SortFunc(c.Acts, func(a, b Act) int { return a.start.Compare(b.start) })
		r.report.Comms = append(r.report.Comms, c)
	}
	slices.SortFunc(r.report.Comms, func(a, b *Comm) int { return a.made.Compare(b.made) })
	return &r.report
}

// Write prints the report for a person.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COMMUNICATOR\tID\tRANKS\tNODES\tOPERATIONS\tWHAT HAPPENED\tNOW")
	for _, c := range r.Comms {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", c.Name, c.ID.Short(), c.members(), c.Nodes, c.Operations, c.story(), c.state())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(t, "TRACE ID\tACT\tCOMMUNICATOR\tRANKS\tSLOWEST")
	for _, c := range r.Comms {
		for _, a := range c.Acts {
			if a.TraceID != "" {
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", a.TraceID, a.name(), c.Name, a.Ranks, a.Longest.Round(10*time.Microsecond))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Comms {
		for _, a := range c.Acts {
			for _, e := range a.Errors {
				fmt.Fprintf(w, "\n%s in %s of %s, on %s: %s\n", e.Code, a.name(), c.Name, ranksText(e.Ranks), e.Text)
			}
		}
	}
	if r.Missed > 0 {
		fmt.Fprintf(w, "\n%d older records had been overwritten; the rings keep the latest.\n", r.Missed)
	}
	for _, b := range r.Broken {
		fmt.Fprintf(w, "\nnot read: %s\n", b)
	}
	return nil
}

// members names the ranks' processes: how many of how many left a tape.
func (c *Comm) members() string {
	if len(c.Ranks) == c.Size {
		return fmt.Sprint(c.Size)
	}
	return fmt.Sprintf("%d of %d", len(c.Ranks), c.Size)
}

// story is the acts in their order.
func (c *Comm) story() string {
	var parts []string
	for _, a := range c.Acts {
		part := a.name()
		if len(a.Errors) > 0 {
			part += fmt.Sprintf(" (%s)", count(len(a.Errors), "error"))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func (a *Act) name() string {
	if a.Seq > 0 {
		return fmt.Sprintf("%s %d", a.Act, a.Seq)
	}
	return a.Act
}

// ranksText is "rank 3" or "ranks 0, 1 and 3".
func ranksText(ranks []int) string {
	slices.Sort(ranks)
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	texts := make([]string, len(ranks))
	for i, r := range ranks {
		texts[i] = fmt.Sprint(r)
	}
	last := len(texts) - 1
	return "ranks " + strings.Join(texts[:last], ", ") + " and " + texts[last]
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// state is the state that the ranks are in, or how many are in which; dead ones are named.
func (c *Comm) state() string {
	by := map[string][]int{}
	var order []string
	for _, r := range c.Ranks {
		if by[r.State] == nil {
			order = append(order, r.State)
		}
		by[r.State] = append(by[r.State], r.Rank)
	}
	if len(order) == 1 {
		return order[0]
	}
	for i, s := range order {
		if strings.HasPrefix(s, deadPrefix) {
			order[i] = ranksText(by[s]) + " " + s
		} else {
			order[i] = fmt.Sprintf("%d %s", len(by[s]), s)
		}
	}
	return strings.Join(order, ", ")
}

// deadPrefix begins the state of a rank whose process ended without ending it.
const deadPrefix = "dead, was "

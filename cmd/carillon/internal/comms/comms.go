// Package comms shows what the communicators of a job did, from the tapes of its processes, dead or alive: a line for
// each communicator, and the trace of each act.
package comms

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/postmortem"
)

// Report is all communicators that the tapes below a folder tell of.
type Report struct {
	Dir    string            `json:"dir"`
	Tapes  int               `json:"tapes"`
	Comms  []postmortem.Comm `json:"communicators"`
	Missed uint64            `json:"records_overwritten"` // gone from the rings before they were read
	Broken []string          `json:"broken,omitempty"`    // what could not be read, and why
}

// Read reads all tapes below dir.
func Read(dir string) (*Report, error) {
	all, err := postmortem.Read([]string{dir}, postmortem.Options{AllJobs: true, Run: -1, Last: 1})
	if err != nil {
		return nil, err
	}
	r := &Report{Dir: dir, Tapes: len(all.Processes), Comms: all.Comms, Missed: all.Missed}
	for _, p := range all.Problems {
		r.Broken = append(r.Broken, p.String())
	}
	return r, nil
}

// Write prints the report for a person.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COMMUNICATOR\tID\tRANKS\tNODES\tOPERATIONS\tWHAT HAPPENED\tNOW")
	for i := range r.Comms {
		c := &r.Comms[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", c.Name, c.ID.Short(), members(c), c.Nodes, c.Operations,
			actList(c), state(c))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(t, "TRACE ID\tACT\tCOMMUNICATOR\tRANKS\tSLOWEST")
	for _, c := range r.Comms {
		for _, a := range c.Acts {
			if a.TraceID != "" {
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", a.TraceID, name(&a), c.Name, a.Ranks, words.Round(a.Longest))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Comms {
		for _, a := range c.Acts {
			for _, e := range a.Errors {
				fmt.Fprintf(w, "\n%s in %s of %s, on %s: %s\n", e.Code, name(&a), c.Name, words.Ranks(e.Ranks), e.Text)
			}
		}
	}
	if r.Missed > 0 {
		fmt.Fprintf(w, "\nOlder records had been overwritten, or cut off (%d); the rings keep the latest.\n", r.Missed)
	}
	for _, b := range r.Broken {
		fmt.Fprintf(w, "\n%s\n", b)
	}
	return nil
}

// members names the ranks' processes: how many of how many left a tape.
func members(c *postmortem.Comm) string {
	if len(c.Ranks) == c.Size {
		return fmt.Sprint(c.Size)
	}
	return fmt.Sprintf("%d of %d", len(c.Ranks), c.Size)
}

func actList(c *postmortem.Comm) string {
	var parts []string
	for _, a := range c.Acts {
		part := name(&a)
		if len(a.Errors) > 0 {
			part += fmt.Sprintf(" (%s)", count(len(a.Errors), "error"))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func name(a *postmortem.Act) string {
	if a.Seq > 0 {
		return fmt.Sprintf("%s %d", a.Act, a.Seq)
	}
	return a.Act
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// state is the state that the ranks are in, or how many are in which; dead ones are named.
func state(c *postmortem.Comm) string {
	by := map[string][]int{}
	var order []string
	for _, r := range c.Ranks {
		s := r.State
		if r.Dead {
			s = deadPrefix + s
		}
		if by[s] == nil {
			order = append(order, s)
		}
		by[s] = append(by[s], r.Rank)
	}
	if len(order) == 1 {
		return order[0]
	}
	for i, s := range order {
		if strings.HasPrefix(s, deadPrefix) {
			order[i] = words.Ranks(by[s]) + " " + s
		} else {
			order[i] = fmt.Sprintf("%d %s", len(by[s]), s)
		}
	}
	return strings.Join(order, ", ")
}

// deadPrefix begins the state of a rank whose process ended without ending it.
const deadPrefix = "dead, was "

package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/postmortem"
)

func newComms() *cobra.Command {
	var asJSON, topology bool
	cmd := &cobra.Command{
		Use:   "comms [JOB]",
		Short: "Show a job's communicators and what happened to them, from its tapes",
		Long: `Show a job's communicators, from the tapes of its processes, running or dead: what happened to each, and
the trace id of each act in its life: init, split, destroy and so on.

With --topology, show where the ranks of each communicator are: their nodes, their rails (a rank's index on its node),
their network connections, and, with PXN, which rank of a node sends to which rank of other nodes
(NCCL_PXN_DISABLE=1 switches PXN off). For NCCL's communicators, it shows only the number of nodes and the hosts of the
ranks: NCCL doesn't report the rest.

` + jobHelp,
		Example: `  carillon comms                       # the job on this host that wrote last
  carillon comms train-1a2b
  carillon run -n 4 --tape-dir /tmp/tapes -- ./digits; carillon comms /tmp/tapes
  carillon comms --topology            # their nodes, rails and connections
  carillon comms --json train-1a2b | jq '.communicators[].name'`,
		Args:              oneJob,
		ValidArgsFunction: completeJobs(1, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := tapesOf(args)
			if err != nil {
				return err
			}
			report, err := readComms(paths)
			if err != nil {
				return err
			}
			var shown interface{ write(io.Writer) error } = report
			if topology {
				shown = topologyOf(report)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), shown)
			}
			return shown.write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.Flags().BoolVar(&topology, "topology", false,
		"show on which node each rank is, and how ranks reach other nodes")
	return cmd
}

type commsReport struct {
	Job    string            `json:"job"`
	Dir    string            `json:"dir"`
	Tapes  int               `json:"tapes"`
	Comms  []postmortem.Comm `json:"communicators"`
	Missed uint64            `json:"records_overwritten"` // before they were read
	Broken []string          `json:"broken,omitempty"`    // tapes that can't be read, and why; similar ones are grouped

	processes []postmortem.Process
}

// readComms reads the last job in folders and tapes.
func readComms(paths []string) (*commsReport, error) {
	all, err := postmortem.Read(paths, postmortem.Options{Last: 1})
	if err != nil {
		return nil, err
	}
	r := &commsReport{
		Job: all.Job, Dir: filepath.Dir(all.Processes[0].Tape), Tapes: len(all.Processes), Comms: all.Comms,
		Missed: all.Missed, processes: all.Processes,
	}
	for _, p := range all.FoldedProblems() {
		r.Broken = append(r.Broken, p.String())
	}
	return r, nil
}

func (r *commsReport) write(w io.Writer) error {
	fmt.Fprintf(w, "Job %s, from %s\n\n", words.Line(r.Job), english.Plural(r.Tapes, "tape", ""))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COMMUNICATOR\tID\tRANKS\tNODES\tENGINE\tOPERATIONS\tWHAT HAPPENED\tSTATE")
	for _, c := range r.Comms {
		ranks := strconv.Itoa(c.Size)
		if len(c.Ranks) < c.Size { // the other ranks left no tape
			ranks = fmt.Sprintf("%d of %d", len(c.Ranks), c.Size)
		}
		nodes := "-" // some versions of NCCL don't tell it
		if c.Nodes > 0 {
			nodes = strconv.Itoa(c.Nodes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", cmp.Or(c.Name, "-"), c.ID.Short(), ranks, nodes,
			cmp.Or(words.Line(c.Engine), "-"), c.Operations, actsOf(&c), r.statesOf(&c))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintln(t, "TRACE ID\tACT\tCOMMUNICATOR\tRANKS\tSLOWEST")
	for _, c := range r.Comms {
		for _, a := range c.Acts {
			if a.TraceID != "" {
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", a.TraceID, nameOf(&a), view.NameOf(c.Name, c.ID), a.Ranks,
					words.Round(a.Longest))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Comms {
		for _, a := range c.Acts {
			for _, e := range a.Errors {
				fmt.Fprintf(w, "\n%s in %s of %s, on %s: %s\n", e.Code, nameOf(&a),
					view.NameOf(c.Name, c.ID), r.names(&c, e.Ranks), e.Text)
			}
		}
	}
	if r.Missed > 0 {
		fmt.Fprintf(w, "\n%d older records are missing: they were overwritten or cut off.\n", r.Missed)
	}
	for _, b := range r.Broken {
		fmt.Fprintf(w, "\n%s\n", b)
	}
	return nil
}

func actsOf(c *postmortem.Comm) string {
	var parts []string
	for _, a := range c.Acts {
		parts = append(parts, nameOf(&a))
		if len(a.Errors) > 0 {
			parts[len(parts)-1] += fmt.Sprintf(" (%s)", english.Plural(len(a.Errors), "error", ""))
		}
	}
	if c.Captured > 0 {
		parts = append(parts, words.Captured(c.Captured))
	}
	return strings.Join(parts, ", ")
}

func nameOf(a *postmortem.Act) string {
	if a.Seq > 0 {
		return fmt.Sprintf("%s %d", a.Act, a.Seq)
	}
	return a.Act
}

func (r *commsReport) names(c *postmortem.Comm, ranks []int) string {
	job := map[int]int{}
	for _, k := range c.Ranks {
		job[k.Rank] = r.processes[k.Process].Rank
	}
	return view.RankNames(ranks, view.NameOf(c.Name, c.ID), job)
}

// statesOf is the state of all ranks, or the number of ranks in each state; dead ranks are named.
func (r *commsReport) statesOf(c *postmortem.Comm) string {
	by := map[string][]int{}
	var order []string
	for _, k := range c.Ranks {
		s := k.State
		if k.Dead {
			s = deadPrefix + s
		}
		if by[s] == nil {
			order = append(order, s)
		}
		by[s] = append(by[s], k.Rank)
	}
	if len(order) == 1 {
		return order[0]
	}
	for i, s := range order {
		if strings.HasPrefix(s, deadPrefix) {
			order[i] = r.names(c, by[s]) + " " + s
		} else {
			order[i] = fmt.Sprintf("%d %s", len(by[s]), s)
		}
	}
	return strings.Join(order, ", ")
}

// deadPrefix begins the state of a rank whose process died.
const deadPrefix = "dead, was "

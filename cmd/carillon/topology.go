package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/runtime/proxy"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// topologyReport says where the ranks of a job's communicators are.
type topologyReport struct {
	Job   string         `json:"job"`
	Comms []commTopology `json:"communicators"`
}

type commTopology struct {
	ID          lifecycle.CommID `json:"id"`
	Name        string           `json:"name"`
	Size        int              `json:"size"`
	Nodes       int              `json:"nodes"`
	PXN         tape.PXN         `json:"pxn"`
	Connections int              `json:"connections"` // between known ranks, each counted once
	Ranks       []rankPlace      `json:"ranks"`       // those whose place is known
	// Hosts says on which host each rank is, if no rank's place is known because NCCL doesn't tell it.
	Hosts []hostRanks `json:"hosts,omitempty"`

	nccl bool
}

// hostRanks are the ranks of a communicator that are on a host.
type hostRanks struct {
	Host  string `json:"host"`
	Ranks []int  `json:"ranks"`
}

// rankPlace is where a rank is, and what it sends for others.
type rankPlace struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	tape.Place
	// Carries are the ranks of other nodes to which it sends on behalf of other ranks of its node. It is absent if
	// there are none, or if a rank of the communicator is unknown.
	Carries []int `json:"carries,omitempty"`
}

func topologyOf(r *commsReport) *topologyReport {
	report := &topologyReport{Job: r.Job, Comms: []commTopology{}}
	for _, c := range r.Comms {
		t := commTopology{
			ID: c.ID, Name: c.Name, Size: c.Size, Nodes: c.Nodes, Ranks: []rankPlace{},
			nccl: (&tape.CommInfo{Engine: c.Engine}).NCCL(),
		}
		for _, k := range c.Ranks {
			if k.Place.IsZero() {
				continue
			}
			t.Ranks = append(t.Ranks, rankPlace{Rank: k.Rank, Host: k.Host, Place: k.Place})
			t.PXN = k.Place.PXN
			t.Connections += k.Place.Connections
		}
		if len(t.Ranks) == 0 {
			t.Hosts = hostsOf(c.Ranks)
		} else if t.known() {
			t.Connections /= 2 // both ends counted it
			t.carriers()
		}
		report.Comms = append(report.Comms, t)
	}
	return report
}

// hostsOf groups ranks by host, in the order of the hosts' lowest ranks.
func hostsOf(ranks []postmortem.Rank) (hosts []hostRanks) {
	for _, k := range ranks {
		i := slices.IndexFunc(hosts, func(h hostRanks) bool { return h.Host == k.Host })
		if i < 0 {
			i, hosts = len(hosts), append(hosts, hostRanks{Host: k.Host})
		}
		hosts[i].Ranks = append(hosts[i].Ranks, k.Rank)
	}
	return hosts
}

// known tells whether all ranks are known, in order and with valid nodes.
func (t *commTopology) known() bool {
	for i, r := range t.Ranks {
		if r.Rank != i || r.Node < 0 || r.Node >= len(t.Ranks) {
			return false
		}
	}
	return len(t.Ranks) == t.Size
}

// carriers finds out which ranks send for other ranks. All ranks must be known.
func (t *commTopology) carriers() {
	node, ranks := make([]int, t.Size), make([][]int, t.Size)
	for _, r := range t.Ranks {
		node[r.Rank] = r.Node
		ranks[r.Node] = append(ranks[r.Node], r.Rank)
	}
	routes := proxy.NewRoutes(node, ranks, t.PXN == tape.PXNOn)
	for to := range t.Ranks {
		for _, local := range ranks {
			if len(local) < 2 || local[0] == to || node[local[0]] == node[to] {
				continue
			}
			if carrier := routes.Carrier(local[0], to); carrier == routes.Carrier(local[1], to) {
				t.Ranks[carrier].Carries = append(t.Ranks[carrier].Carries, to)
			}
		}
	}
}

func (r *topologyReport) write(w io.Writer) error {
	fmt.Fprintf(w, "Job %s\n", words.Line(r.Job))
	if len(r.Comms) == 0 {
		fmt.Fprintln(w, "\nIts tapes have no communicator.")
	}
	for _, c := range r.Comms {
		if len(c.Ranks) == 0 {
			c.writeHosts(w)
			continue
		}
		fmt.Fprintf(w, "\n%s: %s on %s, PXN %s, %s\n", view.NameOf(c.Name, c.ID), english.Plural(c.Size, "rank", ""),
			english.Plural(c.Nodes, "node", ""), pxnText(c.PXN), english.Plural(c.Connections, "connection", ""))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "RANK\tNODE\tRAIL\tHOST\tCONNECTIONS\tSENDS FOR ITS NODE TO")
		for _, k := range c.Ranks {
			fmt.Fprintf(t, "%d\t%d\t%d of %d\t%s\t%d\t%s\n", k.Rank, k.Node, k.Local, k.Locals, words.Line(k.Host),
				k.Connections, c.sendsTo(&k))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if missing := c.Size - len(c.Ranks); missing > 0 {
			fmt.Fprintf(w, "%s left no tape here, or had not connected; connections with them count once.\n",
				english.Plural(missing, "rank", ""))
		}
	}
	return nil
}

// writeHosts says on which hosts the ranks of a communicator are, if no rank's place is known, and why it isn't known.
func (t *commTopology) writeHosts(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s", view.NameOf(t.Name, t.ID), english.Plural(t.Size, "rank", ""))
	if t.Nodes > 0 {
		fmt.Fprintf(w, " on %s", english.Plural(t.Nodes, "node", ""))
	}
	why := "the ranks have not connected to each other"
	if t.nccl {
		why = "NCCL doesn't tell rails, connections and PXN"
	}
	fmt.Fprintf(w, "; %s\n", why)
	for _, h := range t.Hosts {
		fmt.Fprintf(w, "  %s: %s\n", words.Line(h.Host), words.Ranks(h.Ranks))
	}
}

func (t *commTopology) sendsTo(k *rankPlace) string {
	switch {
	case len(k.Carries) > 0:
		return words.Ranks(k.Carries)
	case t.PXN == tape.PXNOn && !t.known() && k.Locals > 1:
		return fmt.Sprintf("rail %d of other nodes", k.Local)
	}
	return "-"
}

func pxnText(pxn tape.PXN) string {
	if pxn == tape.PXNOn {
		return "on"
	}
	return "off (" + pxn.String() + ")"
}

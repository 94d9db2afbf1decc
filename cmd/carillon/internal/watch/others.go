package watch

import (
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/health"
)

// maxOthers is how many endpoints of other hosts a Watcher asks beside those that it was given.
const maxOthers = 16

// Others are the endpoints of ranks that run, which the snapshots name but of which none is; snapshots[i] is
// targets[i]'s, nil if it has none. job, which may be nil, is whose processes are known already. What a target tells is
// believed as far as it is trusted: those who may see the token name the others who may, but over a network that could
// read it only where theirs is one, too.
func Others(job *find.Job, targets []endpoint.Target, snapshots []*endpoint.Snapshot) []endpoint.Target {
	type process struct {
		host string
		pid  int
	}
	known := map[process]bool{}
	if job != nil {
		for i := range job.Processes {
			known[process{job.Processes[i].Host, job.Processes[i].PID}] = true
		}
	}
	for _, s := range snapshots {
		if s != nil {
			known[process{s.Host, s.PID}] = true
		}
	}
	var others []endpoint.Target
	for i, s := range snapshots {
		if s == nil || !targets[i].Trusted {
			continue
		}
		for _, r := range s.Ranks {
			key := process{r.Host, r.PID}
			if r.URL == "" || known[key] || !running(&r) {
				continue
			}
			to, err := endpoint.ParseURL(r.URL)
			if err != nil || slices.ContainsFunc(targets, func(t endpoint.Target) bool { return t.URL == to.URL }) {
				continue
			}
			known[key] = true
			to.Trusted = exposure(to.URL) <= exposure(targets[i].URL)
			others = append(others, to)
		}
	}
	return others
}

// exposure is how far what is sent to a URL can be read: 0 by the receiver alone, 1 on this host, 2 on the network.
func exposure(url string) int {
	switch {
	case strings.HasPrefix(url, "https://"):
		return 0
	case find.Loopback(url):
		return 1
	default:
		return 2
	}
}

func running(r *health.Rank) bool { return r.State == "alive" || r.State == "suspect" }

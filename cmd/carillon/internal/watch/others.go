package watch

import (
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/health"
)

// maxOthers bounds the endpoints of other hosts that a watcher asks.
const maxOthers = 16

// Others are the endpoints of further running ranks that the targets' answers name. Processes of job, which may be nil,
// are left out. Only answers of trusted targets count. An endpoint that a trusted target names is trusted as well,
// unless the token would be more exposed on the way to it than on the way to the target.
func Others(job *find.Job, targets []endpoint.Target, answers map[endpoint.Target]*health.Snapshot) []endpoint.Target {
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
	for _, t := range targets {
		if s := answers[t]; s != nil {
			known[process{s.Host, s.PID}] = true
		}
	}
	var others []endpoint.Target
	for _, t := range targets {
		s := answers[t]
		if s == nil || !t.Trusted {
			continue
		}
		for _, r := range s.Ranks {
			key := process{r.Host, r.PID}
			if r.URL == "" || known[key] || !r.Running() {
				continue
			}
			to, err := endpoint.ParseURL(r.URL)
			if err != nil || slices.ContainsFunc(targets, func(t endpoint.Target) bool { return t.URL == to.URL }) {
				continue
			}
			known[key] = true
			to.Of = endpoint.Of(r.Rank, r.Host, r.PID)
			to.Trusted = exposure(to.URL) <= exposure(t.URL)
			others = append(others, to)
		}
	}
	return others
}

// exposure says where a request to a URL can be read: 0 by the receiver only, 1 on this host, 2 on the network.
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

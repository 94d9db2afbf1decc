package node

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// prefix is what the names of Carillon's own variables begin with.
const prefix = "CARILLON_"

// variables are all that begin with prefix and that a process of a job, or the command carillon, obeys.
var variables = []string{
	"CARILLON_ADDRESS", "CARILLON_ALGO", "CARILLON_COMM_BLOCKING", "CARILLON_GPU", "CARILLON_HEALTH_ADDR", "CARILLON_HEALTH_TLS_CERT",
	"CARILLON_HEALTH_TLS_CLIENT_CA", "CARILLON_HEALTH_TLS_KEY", "CARILLON_HEALTH_TOKEN", "CARILLON_HEALTH_TOKEN_FILE",
	"CARILLON_HEALTH_TRUSTED_PROXIES", "CARILLON_HOSTID", "CARILLON_JOB", "CARILLON_JOB_SECRET", "CARILLON_JOB_SECRET_FILE",
	"CARILLON_KEEPALIVE", "CARILLON_LOCAL_RANK", "CARILLON_LOCAL_WORLD_SIZE", "CARILLON_LOG", "CARILLON_LOG_FORMAT", "CARILLON_RANK",
	"CARILLON_RAS", "CARILLON_RAS_ADDR", "CARILLON_RAS_ALERTMANAGERS", "CARILLON_RAS_MIN_POLL_INTERVAL", "CARILLON_RAS_NETWORK",
	"CARILLON_RAS_SEEDS", "CARILLON_RAS_WEBHOOKS", "CARILLON_RAS_WEBHOOK_SECRET", "CARILLON_RAS_WEBHOOK_SECRET_FILE", "CARILLON_SIGNALS",
	"CARILLON_SIMD", "CARILLON_SLOW_THRESHOLD", "CARILLON_STALL_THRESHOLD", "CARILLON_TAPE", "CARILLON_TAPE_DIR", "CARILLON_TAPE_KEEP",
	"CARILLON_WORLD_SIZE",
}

// service matches what Kubernetes sets in all containers of a namespace that has a Service with a name such as carillon or carillon-ui.
var service = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// unknown says which variables of an environment, "NAME=value" each, begin with prefix and are none of Carillon's, a sentence each: a
// misspelt one would come to nothing without a word.
func unknown(environ []string) []string {
	var said []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, prefix) || value == "" || slices.Contains(variables, name) || service.MatchString(name) {
			continue
		}
		text := "ignored: " + name + ", which is none of Carillon's variables"
		if near := nearest(name); near != "" {
			text += "; is " + near + " meant?"
		}
		said = append(said, text)
	}
	slices.Sort(said)
	return said
}

// nearest is the variable that name may be a misspelling of; empty if there is none.
func nearest(name string) string {
	distance := func(v string) int { return levenshtein.Distance(name, v, nil) }
	best := slices.MinFunc(variables, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
	if 3*distance(best) > len(name)-len(prefix) {
		return ""
	}
	return best
}

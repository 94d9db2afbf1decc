package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/term"
)

// Config says what to run and how. The zero value of a field has the meaning given with it.
type Config struct {
	Program []string // with its arguments; it is looked up in PATH
	Ranks   int      // how many ranks this machine runs

	// Nodes is how many nodes this machine simulates: consecutive ranks form Nodes groups of nearly equal size, and
	// each group gets a host id of its own. 0 and 1 simulate none.
	Nodes int

	// Hosts is how many machines take part, each with a launcher and Ranks ranks of its own; 0 means 1. Host is this
	// machine's place among them, from 0.
	Hosts, Host int

	// MasterAddr and MasterPort are where rank 0 listens. With one host they may be empty: then they are the loopback
	// address and a free port.
	MasterAddr string
	MasterPort int
	// Rendezvous is where the ranks meet, if a variable in Env says so: then MasterAddr and MasterPort may be empty
	// with several hosts, too, and the ranks don't get them.
	Rendezvous string

	// Name names the job among others, as the folder of its tapes. Empty derives a name from the program's.
	Name string

	// Secret authenticates the job's ranks to each other. Empty makes a random one, which only works with one host. The
	// ranks get it in a file that only the job's user can read, never on a command line.
	Secret string

	TapeDir     string // for the ranks' tapes, made if need be; empty: as Env says
	TapesAt     string // where the tapes are, by TapeDir or Env; the launcher's ledger goes there; empty: no ledger
	TeeDir      string // for a log of each rank's output, made if need be; empty: none
	TargetsFile string // where Prometheus' file_sd_config finds the ranks of this host, while the job runs; empty: none

	Linger   time.Duration // how long the other ranks may take to end by themselves after one failed
	Grace    time.Duration // between asking a rank to end (SIGTERM) and killing it (SIGKILL)
	MinRanks int           // of this host that must run, or have ended without failure, for the job to go on; 0: all
	// MaxRestarts is how often all ranks of this host are started again after a failure ended the job.
	MaxRestarts int

	Env            []string // the ranks' environment, apart from the variables that the launcher adds
	Stdin          *os.File // rank 0's; nil, as for all other ranks, is /dev/null
	Stdout, Stderr *os.File // get the ranks' output, and Stderr the launcher's messages; neither is closed

	Color          term.ColorMode // of the ranks' prefixes
	Verbose, Quiet bool           // Verbose adds each rank's pid and a last line on success; Quiet shows only failures

	// AtEnd, unless nil, is called when the ranks of a started job have ended, until a signal cancels its context. The
	// text that it returns is shown as the launcher's last line.
	AtEnd func(context.Context) string

	// Signals delivers the signals that the launcher received; nil delivers none.
	Signals <-chan os.Signal

	healthPorts []int  // for TargetsFile
	reserved    []int  // sockets that are bound to the reserved ports
	restarts    int    // so far
	secretFile  string // while ranks run; empty: the secret is in their environment
}

// ConfigError says which field can't be used, and what would be allowed. Field is the name of the command's flag.
type ConfigError struct {
	Field, Value, Allowed string
}

func (e *ConfigError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is missing, want %s", e.Field, e.Allowed)
	}
	return fmt.Sprintf("%s is %q, allowed is %s", e.Field, e.Value, e.Allowed)
}

// maxRanks bounds the processes that a typing error can start.
const maxRanks = 4096

var nameRule = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$`)

// validate names the first field that can't be used, as a *ConfigError.
func (c *Config) validate() error {
	wrong := func(field string, value any, allowed string) error {
		return &ConfigError{Field: field, Value: fmt.Sprint(value), Allowed: allowed}
	}
	hosts := max(c.Hosts, 1)
	switch {
	case len(c.Program) == 0:
		return wrong("the program", "", "a program and its arguments, after --")
	case c.Ranks < 1 || c.Ranks > maxRanks:
		return wrong("-n", c.Ranks, fmt.Sprintf("1 to %d", maxRanks))
	case c.Nodes < 0 || c.Nodes > c.Ranks:
		return wrong("--simulate-nodes", c.Nodes, fmt.Sprintf("1 to the number of ranks, %d", c.Ranks))
	case c.Hosts < 0 || hosts*c.Ranks > 1<<20:
		return wrong("--nnodes", c.Hosts, "1 or more, and at most 1048576 ranks in all")
	case hosts == 1 && c.Host != 0:
		return wrong("--node-rank", c.Host, "0, unless --nnodes is more than 1")
	case c.Host < 0 || c.Host >= hosts:
		return wrong("--node-rank", c.Host, fmt.Sprintf("0 to %d", hosts-1))
	case c.MasterPort < 0 || c.MasterPort > 65535:
		return wrong("--master-port", c.MasterPort, "1 to 65535, or 0 for a free one")
	case strings.ContainsAny(c.MasterAddr, " \t\n/"):
		return wrong("--master-addr", c.MasterAddr, "a host name or an address, without a port")
	case c.Name != "" && !nameRule.MatchString(c.Name):
		return wrong("--job", c.Name,
			"up to 63 letters, digits, dots, dashes and underscores, not starting with a dot or dash")
	case c.Linger < 0:
		return wrong("--linger", c.Linger, "0 or more")
	case c.MinRanks < 0 || c.MinRanks > c.Ranks:
		return wrong("--min-ranks", c.MinRanks, fmt.Sprintf("1 to the number of ranks, %d, or 0 for all", c.Ranks))
	case c.Grace < 0:
		return wrong("--grace", c.Grace, "0 or more")
	case c.MaxRestarts < 0:
		return wrong("--max-restarts", c.MaxRestarts, "0 or more")
	case c.MaxRestarts > 0 && c.Stdin != nil:
		return wrong("--max-restarts", c.MaxRestarts, "0 with --stdin: what rank 0 has read is gone for the next one")
	case hosts == 1:
		return nil
	case c.Nodes > 1:
		return wrong("--simulate-nodes", c.Nodes, "1 when --nnodes is above 1: it simulates nodes on one machine")
	case c.MasterAddr == "" && c.Rendezvous == "":
		return wrong("--master-addr", "", "the address of the machine with --node-rank 0, the same on all machines")
	case c.MasterPort == 0 && c.Rendezvous == "":
		return wrong("--master-port", "", "a port that is free on that machine, the same on all machines")
	case c.Secret == "":
		return wrong("the job's secret", "", "a random text in CARILLON_JOB_SECRET, or in the file that "+
			"CARILLON_JOB_SECRET_FILE names, the same on all machines (openssl rand -hex 32 makes one)")
	}
	return nil
}

func (c *Config) worldSize() int { return max(c.Hosts, 1) * c.Ranks }

func (c *Config) firstRank() int { return c.Host * c.Ranks }

type place struct {
	node, local, size int // the simulated node, the rank's place on it, and how many ranks the node has
}

// placeOf returns the place of the i-th rank of this host. The first nodes have one rank more if need be.
func (c *Config) placeOf(i int) place {
	nodes := max(c.Nodes, 1)
	small, larger := c.Ranks/nodes, c.Ranks%nodes
	if boundary := larger * (small + 1); i >= boundary {
		i -= boundary
		return place{node: larger + i/small, local: i % small, size: small}
	}
	return place{node: i / (small + 1), local: i % (small + 1), size: small + 1}
}

// others matches variables of other launchers, which this launcher may have inherited and its ranks must not.
var others = regexp.MustCompile(
	`^(CARILLON_(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|ADDRESS|JOB_SECRET|JOB_SECRET_FILE)|TORCHELASTIC_\w+)=`)

func (c *Config) environment(i int, hostname string) []string {
	p := c.placeOf(i)
	env := slices.DeleteFunc(slices.Clone(c.Env), others.MatchString)
	set := func(key, value string) { env = append(env, key+"="+value) }
	set("RANK", strconv.Itoa(c.firstRank()+i))
	set("WORLD_SIZE", strconv.Itoa(c.worldSize()))
	set("LOCAL_RANK", strconv.Itoa(p.local))
	set("LOCAL_WORLD_SIZE", strconv.Itoa(p.size))
	if c.MasterPort != 0 {
		set("MASTER_ADDR", c.MasterAddr)
		set("MASTER_PORT", strconv.Itoa(c.MasterPort))
	}
	set("CARILLON_JOB", c.Name)
	if c.secretFile != "" {
		set("CARILLON_JOB_SECRET_FILE", c.secretFile)
	} else {
		set("CARILLON_JOB_SECRET", c.Secret)
	}
	if c.MaxRestarts > 0 {
		set("TORCHELASTIC_RESTART_COUNT", strconv.Itoa(c.restarts))
		set("TORCHELASTIC_MAX_RESTARTS", strconv.Itoa(c.MaxRestarts))
	}
	if c.TapeDir != "" {
		set("CARILLON_TAPE_DIR", c.TapeDir)
	}
	if c.Nodes > 1 {
		set("CARILLON_HOSTID", c.hostID(i, hostname))
	}
	if addr := c.healthAddr(i); addr != "" {
		set("CARILLON_HEALTH_ADDR", addr)
	}
	return env
}

func (c *Config) hostID(i int, hostname string) string {
	if c.Nodes > 1 {
		return fmt.Sprintf("%s-node-%d", hostname, c.placeOf(i).node)
	}
	return hostname
}

func (c *Config) logPath(i int) string {
	if c.TeeDir == "" {
		return ""
	}
	return filepath.Join(c.TeeDir, fmt.Sprintf("rank-%d.log", c.firstRank()+i))
}

package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config is all that can be set of a process's runtime. Default, FromEnv and With… options fill it; later ones win.
type Config struct {
	// World is the process's place in the job. Default: one rank, alone. FromEnv: see package launch.
	World launch.World

	// Tape switches the flight recorder on. Default: true. CARILLON_TAPE=off.
	Tape bool
	// TapeDir is where jobs' tapes are kept. Default: tape.DefaultDir. CARILLON_TAPE_DIR.
	TapeDir string

	// Health is where the health endpoint listens, "host:port"; port 0 picks a free one; empty is no endpoint. Beyond loopback it needs
	// HealthAccess. Default: 127.0.0.1:0. CARILLON_HEALTH_ADDR, "off" for none.
	Health string
	// HealthAccess says who may ask there. Default: anybody on this host. CARILLON_HEALTH_TOKEN, CARILLON_HEALTH_TOKEN_FILE with a token a
	// line, CARILLON_HEALTH_TLS_CERT, CARILLON_HEALTH_TLS_KEY, CARILLON_HEALTH_TLS_CLIENT_CA.
	HealthAccess health.Access
	// HealthProxies are the proxies whose X-Forwarded-For the endpoint believes. Default: none. CARILLON_HEALTH_TRUSTED_PROXIES, addresses
	// or networks ("10.0.0.0/8") with commas between them.
	HealthProxies []netip.Prefix

	// GPU says which GPUs are watched, where there is an NVIDIA driver. Default: OwnGPUs. CARILLON_GPU=on|all|off.
	GPU GPUs

	// SlowThreshold is the age at which an operation announces itself in its trace, and the duration from which its span is always kept; at
	// most StallThreshold; 0 announces none before it stalls. What normally takes longer is slow at twice that. Default: 1s.
	// CARILLON_SLOW_THRESHOLD, "off" for 0.
	SlowThreshold time.Duration
	// StallThreshold is the least age at which an operation, or an act such as an init, is reported as stalled: in its trace, in metrics and
	// to StallObservers. What normally takes longer stalls at eight times that. 0 looks for nothing. Default: 5s.
	// CARILLON_STALL_THRESHOLD, "off" for 0.
	StallThreshold time.Duration

	// MinPollInterval is how long a client of the health endpoint waits between two queries of one document under /api/v1/ras, ranks, comms or
	// verdicts; who asks earlier is refused. 0 refuses nobody. Default: 5s. CARILLON_RAS_MIN_POLL_INTERVAL, "off" for 0.
	MinPollInterval time.Duration

	// RAS says how the process takes part in finding out what holds the job up. Default: it does, and tells who listens at the health
	// endpoint.
	RAS RAS

	// Signals makes SIGTERM export what is left, for at most 2 seconds, before it ends the process. A program that handles SIGTERM itself
	// switches it off, and calls Stop; else it gets the signal twice. It concerns Start only: Module leaves signals to fx. Default: true.
	// CARILLON_SIGNALS.
	Signals bool

	// Blocking makes all communicators blocking. Default: false. CARILLON_COMM_BLOCKING, NCCL_COMM_BLOCKING.
	Blocking bool
	// Algorithm is used wherever it can be. Default: algo.Auto, the tuning table. CARILLON_ALGO.
	Algorithm algo.Algorithm
	// HostID tells hosts apart; processes with the same one share memory. Default: the kernel's boot id.
	// CARILLON_HOSTID, NCCL_HOSTID.
	HostID string
	// DisableP2P keeps ranks of one process from reading each other's memory directly. Default: false. NCCL_P2P_DISABLE.
	DisableP2P bool
	// DisableSHM keeps processes of one host from sharing memory. Default: false. NCCL_SHM_DISABLE.
	DisableSHM bool
	// SocketIfname chooses the network interfaces for TCP, in NCCL's syntax ("eth", "=eth0", "^docker"). NCCL_SOCKET_IFNAME.
	SocketIfname string
	// Keepalive is after how long without a sign of life a rank's host is given up, which fails the communicators: a cut cable, a lost power
	// supply; at least 2s. Default: 10s. CARILLON_KEEPALIVE.
	Keepalive time.Duration

	// SIMD is the most that reductions may use of the processor, process-wide. Default: all it has.
	// CARILLON_SIMD=off|avx2|avx512.
	SIMD kernels.SIMD

	// LogLevel is the lowest level that is logged; a collector that OTEL_* variables name gets INFO in any case. Default: warn.
	// CARILLON_LOG=debug|info|warn|error|off, else NCCL_DEBUG=VERSION|WARN|INFO|TRACE.
	LogLevel slog.Level
	// LogVersion logs which version runs, whatever LogLevel is. Default: false. NCCL_DEBUG, with any value.
	LogVersion bool
	// LogSubsystems chooses the lines below WARN. Default: logsink.DefaultSubsystems. NCCL_DEBUG_SUBSYS.
	LogSubsystems logsink.Subsystems
	// LogFile is where to log, with %h for the host and %p for the process; empty is standard error. NCCL_DEBUG_FILE.
	LogFile string
	// LogFormat is how lines look there. Default: logsink.Text. CARILLON_LOG_FORMAT=text|json.
	LogFormat logsink.Format
	// Log takes the lines in place of LogFile and standard error, and decides about levels; nil is none.
	Log *slog.Logger

	// obeyed are the variables that FromEnv found, in the order in which it looked.
	obeyed []variable
	// unknown says which variables FromEnv ignored, a sentence each.
	unknown []string

	reading tape.FollowOptions // of the process's own tape; the zero value but in tests
}

// variable is one of the environment.
type variable struct{ name, value string }

// minKeepalive is the shortest Keepalive: probes are whole seconds apart.
const minKeepalive = 2 * time.Second

// Default is the configuration without environment or options.
func Default() Config {
	return Config{
		World:    launch.World{Size: 1, LocalSize: 1, Launcher: "none"},
		Tape:     true,
		Health:   "127.0.0.1:0",
		Signals:  true,
		SIMD:     kernels.DetectSIMD(),
		LogLevel: slog.LevelWarn,

		SlowThreshold: stall.DefaultSlow, StallThreshold: stall.DefaultFloor, MinPollInterval: health.DefaultMinPollInterval,
	}
}

// Option sets a part of the configuration. Its error names the value and what is allowed.
type Option func(*Config) error

// WithConfig replaces the whole configuration. Start from Default.
func WithConfig(cfg Config) Option {
	return func(c *Config) error {
		*c = cfg
		return nil
	}
}

// WithLog logs to log.
func WithLog(log *slog.Logger) Option {
	return func(c *Config) error {
		c.Log = log
		return nil
	}
}

// WithHealth sets the address of the health endpoint; empty is none.
func WithHealth(addr string) Option {
	return func(c *Config) error {
		c.Health = addr
		return nil
	}
}

// WithoutTape switches the flight recorder off, and with it all that reads it: traces and most metrics.
func WithoutTape() Option {
	return func(c *Config) error {
		c.Tape = false
		return nil
	}
}

// WithTapeDir sets where jobs' tapes are kept.
func WithTapeDir(dir string) Option {
	return func(c *Config) error {
		c.TapeDir = dir
		return nil
	}
}

// WithSignals says whether Start makes SIGTERM export what is left before it ends the process; see Config.Signals.
func WithSignals(on bool) Option {
	return func(c *Config) error {
		c.Signals = on
		return nil
	}
}

// WithStallThresholds sets the ages at which operations and acts are slow and stall; 0 is never. See Config.
func WithStallThresholds(slow, stalled time.Duration) Option {
	return func(c *Config) error {
		c.SlowThreshold, c.StallThreshold = slow, stalled
		return nil
	}
}

// WithGPUs says which GPUs are watched; see Config.GPU.
func WithGPUs(which GPUs) Option {
	return func(c *Config) error {
		c.GPU = which
		return nil
	}
}

// WithWorld sets the process's place in the job.
func WithWorld(w launch.World) Option {
	return func(c *Config) error {
		c.World = w
		return nil
	}
}

// FromEnv reads the process's environment: CARILLON_… variables, NCCL's, and the launcher's (see package launch).
// Variables that are not set change nothing. Every problem is named, at once. A CARILLON_… variable that is none is ignored, and a
// warning says so.
func FromEnv() Option {
	return func(c *Config) error {
		c.unknown = unknown(os.Environ())
		return FromEnviron(os.Getenv)(c)
	}
}

// FromEnviron is FromEnv with another environment.
func FromEnviron(getenv func(string) string) Option {
	return func(c *Config) error {
		world, err := launch.FromEnv(getenv)
		e := environment{getenv: getenv, errs: []error{err}}
		c.World = world
		e.flag(&c.Tape, "CARILLON_TAPE")
		e.text(&c.TapeDir, "CARILLON_TAPE_DIR")
		if v := e.get("CARILLON_HEALTH_ADDR"); strings.EqualFold(v, "off") {
			c.Health = ""
		} else {
			e.check(&c.Health, "CARILLON_HEALTH_ADDR", v, checkHealthAddr)
		}
		e.access(c)
		e.duration(&c.SlowThreshold, "CARILLON_SLOW_THRESHOLD")
		e.duration(&c.StallThreshold, "CARILLON_STALL_THRESHOLD")
		e.duration(&c.MinPollInterval, "CARILLON_RAS_MIN_POLL_INTERVAL")
		e.ras(&c.RAS)
		if v := e.get("CARILLON_GPU"); v != "" {
			c.GPU, err = parseGPUs(v)
			e.problem("CARILLON_GPU", v, err)
		}
		e.flag(&c.Signals, "CARILLON_SIGNALS")
		e.flag(&c.Blocking, "NCCL_COMM_BLOCKING")
		e.flag(&c.Blocking, "CARILLON_COMM_BLOCKING")
		for _, name := range []string{"NCCL_HOSTID", "CARILLON_HOSTID"} {
			e.check(&c.HostID, name, e.get(name), func(id string) error { return fabric.Config{HostID: id}.Validate() })
		}
		e.flag(&c.DisableP2P, "NCCL_P2P_DISABLE")
		e.flag(&c.DisableSHM, "NCCL_SHM_DISABLE")
		e.check(&c.SocketIfname, "NCCL_SOCKET_IFNAME", e.get("NCCL_SOCKET_IFNAME"),
			func(names string) error { return fabric.Config{SocketIfname: names}.Validate() })
		if v := e.get("CARILLON_KEEPALIVE"); v != "" {
			if c.Keepalive, err = time.ParseDuration(v); err != nil || c.Keepalive < minKeepalive {
				err = fmt.Errorf("want a duration of at least %v with its unit, such as 30s", minKeepalive)
			}
			e.problem("CARILLON_KEEPALIVE", v, err)
		}
		if v := e.get("CARILLON_ALGO"); v != "" {
			c.Algorithm, err = algo.ParseAlgorithm(v)
			e.problem("CARILLON_ALGO", v, err)
		}
		if v := e.get("CARILLON_SIMD"); v != "" {
			c.SIMD, err = kernels.ParseSIMD(v)
			e.problem("CARILLON_SIMD", v, err)
		}
		e.log(c)
		c.obeyed = e.obeyed
		return errors.Join(e.errs...)
	}
}

// environment reads variables and gathers what is wrong with them.
type environment struct {
	getenv func(string) string
	errs   []error
	obeyed []variable
}

// get is a variable's value, and notes that it was obeyed.
func (e *environment) get(name string) string {
	v := e.getenv(name)
	if v != "" {
		e.obeyed = append(e.obeyed, variable{name, v})
	}
	return v
}

func (e *environment) problem(name, value string, err error) {
	if err != nil {
		e.errs = append(e.errs, fmt.Errorf("%s=%q: %w", name, value, err))
	}
}

func (e *environment) text(to *string, name string) {
	if v := e.get(name); v != "" {
		*to = v
	}
}

// check takes a variable's value, if it is set and nothing is wrong with it.
func (e *environment) check(to *string, name, value string, wrong func(string) error) {
	if value == "" {
		return
	}
	err := wrong(value)
	if err == nil {
		*to = value
	}
	e.problem(name, value, err)
}

// checkHealthAddr says what is wrong with Config.Health.
func checkHealthAddr(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return errors.New("want host:port, such as 127.0.0.1:0 (any free port), or off for none")
	}
	return nil
}

func (e *environment) flag(to *bool, name string) {
	v := e.get(name)
	switch strings.ToLower(v) {
	case "":
	case "1", "true", "on", "yes":
		*to = true
	case "0", "false", "off", "no":
		*to = false
	default:
		e.problem(name, v, errors.New("want 1, true, on, yes, or 0, false, off, no"))
	}
}

func (e *environment) duration(to *time.Duration, name string) {
	v := e.get(name)
	if v == "" {
		return
	}
	if strings.EqualFold(v, "off") {
		*to = 0
		return
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < stall.MinThreshold || d > stall.MaxThreshold {
		e.problem(name, v, fmt.Errorf("want a duration from %v to %v with its unit, such as 500ms or 5s, or off", stall.MinThreshold, stall.MaxThreshold))
		return
	}
	*to = d
}

// secret is text that isn't noted: what was obeyed is logged.
func (e *environment) secret(name string) string { return e.getenv(name) }

func (e *environment) access(c *Config) {
	a := &c.HealthAccess
	if token := e.secret("CARILLON_HEALTH_TOKEN"); token != "" {
		a.Tokens = []string{token}
	}
	if file := e.get("CARILLON_HEALTH_TOKEN_FILE"); file != "" {
		text, err := os.ReadFile(file)
		e.problem("CARILLON_HEALTH_TOKEN_FILE", file, err)
		tokens := strings.Fields(string(text))
		if err == nil && len(tokens) == 0 {
			e.problem("CARILLON_HEALTH_TOKEN_FILE", file, errors.New("want a token a line, and there is none"))
		}
		a.Tokens = append(a.Tokens, tokens...)
	}
	e.text(&a.CertFile, "CARILLON_HEALTH_TLS_CERT")
	e.text(&a.KeyFile, "CARILLON_HEALTH_TLS_KEY")
	e.text(&a.ClientCAFile, "CARILLON_HEALTH_TLS_CLIENT_CA")
	if v := e.get("CARILLON_HEALTH_TRUSTED_PROXIES"); v != "" {
		c.HealthProxies = nil
		for entry := range strings.SplitSeq(v, ",") {
			p, err := parseNetwork(strings.TrimSpace(entry))
			e.problem("CARILLON_HEALTH_TRUSTED_PROXIES", entry, err)
			c.HealthProxies = append(c.HealthProxies, p)
		}
	}
}

// parseNetwork reads "10.0.0.0/8", or an address, which is a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().Prefix(addr.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, errors.New("want addresses or networks, such as 10.0.0.7 or 10.0.0.0/8, with commas between them")
	}
	return p.Masked(), nil
}

func (e *environment) log(c *Config) {
	var err error
	if v := e.get("CARILLON_LOG"); v != "" {
		c.LogLevel, err = logsink.ParseLevel(v)
		e.problem("CARILLON_LOG", v, err)
	} else if v := e.get("NCCL_DEBUG"); v != "" {
		c.LogLevel, err = logsink.ParseNCCLDebug(v)
		c.LogVersion = true
		e.problem("NCCL_DEBUG", v, err)
	}
	if v := e.get("NCCL_DEBUG_SUBSYS"); v != "" {
		c.LogSubsystems, err = logsink.ParseSubsystems(v)
		e.problem("NCCL_DEBUG_SUBSYS", v, err)
	}
	e.text(&c.LogFile, "NCCL_DEBUG_FILE")
	if v := e.get("CARILLON_LOG_FORMAT"); v != "" {
		c.LogFormat, err = logsink.ParseFormat(v)
		e.problem("CARILLON_LOG_FORMAT", v, err)
	}
}

// Validate names every field that has a value that is not allowed.
func (c Config) Validate() error {
	var errs []error
	bad := func(field string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("node.Config.%s is %v: %s", field, value, allowed))
	}
	if c.World.Size < 1 {
		bad("World.Size", c.World.Size, "a job has at least one rank")
	} else if c.World.Rank < 0 || c.World.Rank >= c.World.Size {
		bad("World.Rank", c.World.Rank, fmt.Sprintf("with %d ranks it must be 0 to %d", c.World.Size, c.World.Size-1))
	}
	if c.Health != "" && checkHealthAddr(c.Health) != nil {
		bad("Health", fmt.Sprintf("%q", c.Health), "want host:port, such as 127.0.0.1:0 (any free port), or empty for none")
	}
	for field, d := range map[string]time.Duration{"SlowThreshold": c.SlowThreshold, "StallThreshold": c.StallThreshold, "MinPollInterval": c.MinPollInterval} {
		if d != 0 && (d < stall.MinThreshold || d > stall.MaxThreshold) {
			bad(field, d, fmt.Sprintf("want %v to %v, or 0 for none", stall.MinThreshold, stall.MaxThreshold))
		}
	}
	if c.Keepalive != 0 && c.Keepalive < minKeepalive {
		bad("Keepalive", c.Keepalive, fmt.Sprintf("want at least %v, or 0 for the default", minKeepalive))
	}
	if len(c.HostID) > fabric.MaxHostID {
		bad("HostID", fmt.Sprintf("%d bytes long", len(c.HostID)), fmt.Sprintf("at most %d bytes", fabric.MaxHostID))
	}
	return errors.Join(errs...)
}

// resolve applies the options to the defaults.
func resolve(opts []Option) (Config, error) {
	cfg := Default()
	var errs []error
	for _, o := range opts {
		errs = append(errs, o(&cfg))
	}
	if err := errors.Join(errs...); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	return cfg, nil
}

package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/ras/ncclras"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/door"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

//go:generate go test -run ^TestVariablesPage$ . -rewrite

// Config is all that can be set of a process's runtime. Start from Default; FromEnv and With… options change it, later
// ones win. A field's tags name the variables that FromEnv reads: env, and nccl for one that env's goes before.
type Config struct {
	// World is the process's place in the job. Default: one rank, alone.
	World launch.World `env:"-"` // package launch reads it

	// Tape switches the flight recorder `on` or `off`; without it there is nothing to see. A process that can't have
	// its tape in its directory has it elsewhere, or none, and warns; with `required`, it doesn't start. Default: on.
	Tape Tape `env:"CARILLON_TAPE"`
	// TapeDir is where the tapes of jobs are kept. Where it doesn't serve, they are in `/dev/shm/carillon-UID` or in
	// the directory for temporary files. Default: `/dev/shm/carillon-UID`.
	TapeDir string `env:"CARILLON_TAPE_DIR"`
	// TapeSize is the most that a process's tape takes, such as `1MiB`. It takes less where that is more than an eighth
	// of what is free, once the tapes of jobs that have ended are removed. Default: 6.3 MiB.
	TapeSize Size `env:"CARILLON_TAPE_SIZE"`
	// TapeDevices is how many communicators on GPUs are seen there at a time; each takes 6 KiB of the tape. Default: 16
	// where there is a driver of NVIDIA's.
	TapeDevices int `env:"CARILLON_TAPE_DEVICES"`
	// TapeKeep is of how many jobs the tapes are kept, when one starts, or `off`; with it, a folder that you name is
	// swept, too. Default: 20, and fewer where there is no room.
	TapeKeep string `env:"CARILLON_TAPE_KEEP"`

	// Health is where the health endpoint listens, `host:port`, for `/livez`, `/readyz`, `/healthz`, `/metrics`,
	// `/api/v1/ras` and a page; port 0 picks a free one, `off` (in Go, an empty text) is no endpoint. On loopback
	// it answers the user of the process and root; others of the host get a yes or no from `/livez` and `/readyz`.
	// Beyond loopback it needs a token or client certificates. Default: `127.0.0.1:0`.
	Health string `env:"CARILLON_HEALTH_ADDR"`
	// HealthAccess says which clients may ask there. Default: this process's user and root, on loopback.
	HealthAccess health.Access
	// HealthTokenFile is a file with more tokens, one a line.
	HealthTokenFile string `env:"CARILLON_HEALTH_TOKEN_FILE"`
	// HealthProxies are the proxies whose `X-Forwarded-For` the endpoint believes: addresses or networks
	// (`10.0.0.0/8`), with commas between them.
	HealthProxies []netip.Prefix `env:"CARILLON_HEALTH_TRUSTED_PROXIES"`
	// MinPollInterval is how long a client of the endpoint waits between two queries of one document under
	// `/api/v1/ras`, `ranks`, `comms` or `verdicts`, after 20 without waiting; an earlier one gets 429. `off`: no
	// limit. Default: 1s.
	MinPollInterval time.Duration `env:"CARILLON_RAS_MIN_POLL_INTERVAL"`

	// GPU is the choice of GPUs that are watched for Xids, memory errors and throttling: `on` for those of
	// CUDA_VISIBLE_DEVICES, `all` for the host's, `off`. Without an NVIDIA driver there is nothing to watch. Default:
	// on.
	GPU GPUs `env:"CARILLON_GPU"`

	// Device puts the process's rank on a GPU: on that of its local rank among those that CUDA_VISIBLE_DEVICES leaves
	// it. Without a Fallback of the program's, NCCL carries communicators that Carillon's kernels can't join. Default,
	// nil: the rank is on none, and the driver is not loaded.
	Device *enginecuda.Options

	// SlowThreshold is the age at which an operation announces itself in its trace; what lasts longer always has its
	// span. What normally takes longer is slow at twice that. `off`: only what stalls. Default: 1s.
	SlowThreshold time.Duration `env:"CARILLON_SLOW_THRESHOLD"`
	// StallThreshold is the least age at which an operation or act that has not ended is reported as stalled, again
	// and again: in its trace, in metrics, by RAS. What normally takes longer stalls at eight times that. `off`: never.
	// Default: 5s.
	StallThreshold time.Duration `env:"CARILLON_STALL_THRESHOLD"`

	// RAS says how the process takes part in finding out what holds the job up.
	RAS RAS

	// Signals makes SIGTERM export what is left, for at most 2 seconds, before it ends the process. A program that
	// handles SIGTERM itself switches it `off` and stops the node; else it gets the signal twice. It concerns Start
	// only, Module leaves signals to fx. Default: on.
	Signals bool `env:"CARILLON_SIGNALS"`

	// Blocking makes all communicators blocking. Default: as asked for in code.
	Blocking bool `env:"CARILLON_COMM_BLOCKING" nccl:"NCCL_COMM_BLOCKING"`
	// Algorithm is an algorithm to use wherever it can be. Default: chosen by size and topology.
	Algorithm algo.Algorithm `env:"CARILLON_ALGO"`
	// HostID tells hosts apart, to try several "nodes" on one: processes with the same one share memory. Default: the
	// kernel's boot id.
	HostID string `env:"CARILLON_HOSTID" nccl:"NCCL_HOSTID"`
	// DisableP2P keeps ranks of one process from reading each other's memory directly.
	DisableP2P bool `env:"NCCL_P2P_DISABLE"`
	// DisableSHM keeps processes of one host from sharing memory.
	DisableSHM bool `env:"NCCL_SHM_DISABLE"`
	// SocketIfname chooses the network interfaces for TCP, in NCCL's syntax: `eth`, `=eth0`, `^docker`.
	SocketIfname string `env:"NCCL_SOCKET_IFNAME"`
	// Wire is how what ranks send each other over TCP is protected: `plain`; `authenticate`, sent in the clear,
	// with a tag that tells what was changed on the way; `encrypt`. It needs a job secret, and is the same on all
	// ranks. RAS is encrypted in any case. Default: plain.
	Wire door.Wire `env:"CARILLON_WIRE"`
	// Keepalive is after how long without a sign of life (a cut cable, a lost power supply) another host is given up,
	// and the communicators fail; at least 2s. Default: 10s.
	Keepalive time.Duration `env:"CARILLON_KEEPALIVE"`
	// SIMD is the most that reductions of the process may use of the processor: `avx512`, `avx2`, `off`. Default: all
	// that it has.
	SIMD kernels.SIMD `env:"CARILLON_SIMD"`

	// LogLevel is the lowest level that is logged: `debug`, `info`, `warn`, `error`, `off`; NCCL_DEBUG has it as NCCL
	// does (`VERSION`, `WARN`, `INFO`, `TRACE`). A collector that OTEL_* variables name gets INFO in any case. Default:
	// warn.
	LogLevel Level `env:"CARILLON_LOG" nccl:"NCCL_DEBUG"`
	// LogVersion logs which version runs, whatever LogLevel is, as any value of NCCL_DEBUG does.
	LogVersion bool
	// LogSubsystems chooses the lines below WARN: NCCL's names (`INIT`, `BOOTSTRAP`, `GRAPH`, `NET`, `COLL`, `DESTROY`,
	// `ENV`, `RAS`), `ALL`, or `^` and those left out; `COLL` has a line for each operation. Default:
	// `INIT,BOOTSTRAP,ENV,DESTROY,RAS`.
	LogSubsystems logsink.Subsystems `env:"NCCL_DEBUG_SUBSYS"`
	// LogFile is where lines go, with `%h` for the host, `%p` for the process, `%%` for a %. Default: standard error.
	LogFile string `env:"NCCL_DEBUG_FILE"`
	// LogFormat is how lines look there: `text` or `json`. Default: text.
	LogFormat logsink.Format `env:"CARILLON_LOG_FORMAT"`
	// Log takes the lines in place of LogFile and standard error, and decides about levels; nil is none.
	Log *slog.Logger

	// Registerer is the program's: it gets Carillon's metrics, and nothing of Go's or of the process, and they leave it
	// at Stop. Several nodes of a process have one each, as of prometheus.WrapRegistererWith. To send what it has is up
	// to the program: OTEL_METRICS_EXPORTER is not obeyed. Default, nil: the metrics are at the health endpoint, with
	// those of Go and of the process, and sent as OTEL_* variables say.
	Registerer prometheus.Registerer
	// Resource describes the process as the program does, on spans, metrics and log records that are exported: what it
	// says goes before what Carillon says (carillon, the rank), and before OTEL_* variables.
	Resource *resource.Resource
	// SpanProcessors get the spans as they end, with ids of Carillon's; they must not block. They are the program's to
	// end, after Stop, which flushes them. A program that has some, or SpanExporters, sees to it where spans go: the
	// exporter that OTEL_* variables name is the program's, too, and Carillon makes none.
	SpanProcessors []sdktrace.SpanProcessor
	// SpanExporters get the spans in batches. They are the program's to end, after Stop.
	SpanExporters []sdktrace.SpanExporter
	// Checks are the program's, beside Carillon's, behind /livez and /readyz; Node.Checks takes more, later.
	Checks []Check
	// Routes are what the health endpoint shows beside its own.
	Routes []health.Route
	// Observers are told what the process's communicators do.
	Observers []Observer

	obeyed  []variable // that FromEnv found
	unknown []string   // a sentence for each variable that FromEnv ignored

	tick time.Duration // tape.Follow's; 0 but in tests
}

// RAS says how a process takes part in finding out what holds its job up, and which receivers it tells beside the
// clients of the health endpoint.
type RAS struct {
	// On makes the process take part; without a tape it never does. Default: on.
	On bool `env:"CARILLON_RAS"`
	// Addr is where the process listens for the job's other processes, UDP and TCP, `host:port`. Default: a free port,
	// on loopback if the launcher says that all ranks are on this host, else at the address that the fabric uses.
	Addr string `env:"CARILLON_RAS_ADDR"`
	// Seeds are where some of those listen, with commas between them. Those of one host find each other by files
	// beside their tapes, those of different hosts when their first communicator begins: seeds are for a job that hangs
	// before. Default: none.
	Seeds []netip.AddrPort `env:"CARILLON_RAS_SEEDS"`
	// Join are the machines, `host` or `host:port`, with commas between them, at which `carillon agent` looks for the
	// agents of a job's other machines: some are enough. Default: rank 0's, as the environment of the ranks says.
	Join []string `env:"CARILLON_RAS_JOIN"`
	// Network says what lies between them, and so how long an answer may take: `host`, `lan`, `wan`. Default: as the
	// launcher says.
	Network Network `env:"CARILLON_RAS_NETWORK"`

	// AcceptNCCLBugs are numbers of ncclras.Bugs whose risk an Agent takes: it asks NCCL's own RAS of ranks that have
	// no tape on its host, but no version that is known to crash when it is asked. Default: none.
	AcceptNCCLBugs []int `env:"-"` // carillon agent has a flag

	// Webhooks are URLs to which verdicts and what happens to GPUs are posted, as CloudEvents, with commas between
	// them.
	Webhooks []string `env:"CARILLON_RAS_WEBHOOKS" secret:"true"`
	// WebhookSecrets sign what is posted: HMAC-SHA256, as Standard Webhooks has it. The variable has one.
	WebhookSecrets []string `env:"CARILLON_RAS_WEBHOOK_SECRET" envSeparator:"\n" secret:"true"`
	// WebhookSecretFile is a file with more of them, one a line.
	WebhookSecretFile string `env:"CARILLON_RAS_WEBHOOK_SECRET_FILE"`
	// Alertmanagers are URLs of the Alertmanagers of one cluster, with commas between them, in which open verdicts are
	// alerts. One that is given up, as when a crash ends the job, is one for at least five minutes, so that somebody is
	// notified.
	Alertmanagers []string `env:"CARILLON_RAS_ALERTMANAGERS" secret:"true"`
}

// Level is a level of log lines.
type Level slog.Level

const (
	// minKeepalive is the shortest Keepalive: probes are whole seconds apart.
	minKeepalive = 2 * time.Second
	// minWebhookSecret is the shortest secret that a webhook.Config takes, in bytes.
	minWebhookSecret = 16
)

// Default is the configuration without environment or options.
func Default() Config {
	return Config{
		World: launch.World{Size: 1, LocalSize: 1, Launcher: launch.None},
		Tape:  TapeOn, Health: "127.0.0.1:0", MinPollInterval: health.DefaultMinPollInterval, RAS: RAS{On: true},
		SlowThreshold: model.DefaultSlow, StallThreshold: model.DefaultFloor, Keepalive: 10 * time.Second,
		Signals: true, SIMD: kernels.DetectSIMD(), LogLevel: Level(slog.LevelWarn),
	}
}

// Option sets a part of the configuration. Its error names the value and what is allowed.
type Option func(*Config) error

// set is an Option that can't fail.
func set(f func(*Config)) Option {
	return func(c *Config) error {
		f(c)
		return nil
	}
}

// WithConfig replaces the whole configuration. Start from Default.
func WithConfig(cfg Config) Option { return set(func(c *Config) { *c = cfg }) }

// WithLog logs to log.
func WithLog(log *slog.Logger) Option { return set(func(c *Config) { c.Log = log }) }

// WithRegisterer has the program's registry show Carillon's metrics; see Config.Registerer.
func WithRegisterer(r prometheus.Registerer) Option {
	return set(func(c *Config) { c.Registerer = r })
}

// WithResource describes the process as the program does; see Config.Resource.
func WithResource(r *resource.Resource) Option { return set(func(c *Config) { c.Resource = r }) }

// WithSpanProcessor adds processors of the program's; see Config.SpanProcessors.
func WithSpanProcessor(p ...sdktrace.SpanProcessor) Option {
	return set(func(c *Config) { c.SpanProcessors = append(c.SpanProcessors, p...) })
}

// WithSpanExporter adds exporters of the program's; see Config.SpanExporters.
func WithSpanExporter(e ...sdktrace.SpanExporter) Option {
	return set(func(c *Config) { c.SpanExporters = append(c.SpanExporters, e...) })
}

// WithCheck adds checks; see Config.Checks.
func WithCheck(checks ...Check) Option {
	return set(func(c *Config) { c.Checks = append(c.Checks, checks...) })
}

// WithRoute adds routes; see Config.Routes.
func WithRoute(routes ...health.Route) Option {
	return set(func(c *Config) { c.Routes = append(c.Routes, routes...) })
}

// WithObserver adds observers; see Config.Observers.
func WithObserver(o ...Observer) Option {
	return set(func(c *Config) { c.Observers = append(c.Observers, o...) })
}

// WithHealth sets the address of the health endpoint; empty is none.
func WithHealth(addr string) Option { return set(func(c *Config) { c.Health = addr }) }

// WithNCCLBugs has an Agent ask NCCL in spite of bugs; see RAS.AcceptNCCLBugs.
func WithNCCLBugs(accept ...int) Option {
	return set(func(c *Config) { c.RAS.AcceptNCCLBugs = append(c.RAS.AcceptNCCLBugs, accept...) })
}

// WithJoin sets where agents of other machines are; see RAS.Join.
func WithJoin(machines ...string) Option { return set(func(c *Config) { c.RAS.Join = machines }) }

// WithoutTape switches the flight recorder off, and with it all that reads it: traces and most metrics.
func WithoutTape() Option { return set(func(c *Config) { c.Tape = TapeOff }) }

// WithTapeDir sets where jobs' tapes are kept.
func WithTapeDir(dir string) Option { return set(func(c *Config) { c.TapeDir = dir }) }

// WithGPU puts the process's rank on a GPU, which Node.GPU is then; see Config.Device. Start fails where there is none.
func WithGPU(o enginecuda.Options) Option { return set(func(c *Config) { c.Device = &o }) }

// WithSignals says whether Start makes SIGTERM export what is left before it ends the process; see Config.Signals.
func WithSignals(on bool) Option { return set(func(c *Config) { c.Signals = on }) }

// problem is a field with a value that is not allowed.
type problem struct {
	field   string
	value   any // nil: not to be shown
	allowed string
}

// Validate names every field that has a value that is not allowed.
func (c *Config) Validate() error {
	var errs []error
	for _, p := range c.problems() {
		text := "node.Config." + p.field
		if p.value != nil {
			text += fmt.Sprintf(" is %v", p.value)
		}
		errs = append(errs, errors.New(text+": "+p.allowed))
	}
	return errors.Join(errs...)
}

func (c *Config) problems() []problem {
	var all []problem
	bad := func(field string, value any, format string, args ...any) {
		all = append(all, problem{field, value, fmt.Sprintf(format, args...)})
	}
	if w := &c.World; w.Size < 1 {
		bad("World.Size", w.Size, "a job has at least one rank")
	} else if w.Rank < 0 || w.Rank >= w.Size {
		bad("World.Rank", w.Rank, "with %d ranks it must be 0 to %d", w.Size, w.Size-1)
	}
	for _, a := range []struct{ field, value, example string }{
		{"Health", c.Health, "127.0.0.1:0 (any free port), or off for none"},
		{"RAS.Addr", c.RAS.Addr, "10.0.0.7:0 (any free port)"},
	} { // a name is looked up when it is needed
		if _, _, err := net.SplitHostPort(a.value); a.value != "" && err != nil {
			bad(a.field, a.value, "want host:port, such as %s", a.example)
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"SlowThreshold", c.SlowThreshold},
		{"StallThreshold", c.StallThreshold},
		{"MinPollInterval", c.MinPollInterval},
	} {
		if d.value != 0 && (d.value < model.MinLimit || d.value > model.MaxLimit) {
			bad(d.field, d.value, "want a duration from %v to %v, or off (in Go, 0)", model.MinLimit, model.MaxLimit)
		}
	}
	if c.Keepalive < minKeepalive {
		bad("Keepalive", c.Keepalive, "want a duration of at least %v, such as 30s", minKeepalive)
	}
	switch c.Tape {
	case TapeOn, TapeOff, TapeRequired:
	default:
		bad("Tape", c.Tape, "want on, off or required")
	}
	if c.TapeDevices < 0 || c.TapeDevices > tape.MaxDevices {
		bad("TapeDevices", c.TapeDevices, "want a number up to %d", tape.MaxDevices)
	}
	if c.TapeSize != 0 && c.TapeSize < tape.MinSize {
		bad("TapeSize", int64(c.TapeSize), "want a size such as 1MiB, of at least %s", humanize.IBytes(tape.MinSize))
	}
	if _, err := tape.ParseKeep(c.TapeKeep, false); err != nil {
		bad("TapeKeep", c.TapeKeep, "want a number of jobs from 0 on, or off")
	}
	if c.Wire != door.Plain && c.World.Size > 1 && len(c.World.Secret) == 0 {
		bad("Wire", c.Wire, "its keys follow from the job's secret, and there is none; set CARILLON_JOB_SECRET or "+
			"CARILLON_JOB_SECRET_FILE to the same random text on all ranks (openssl rand -hex 32 makes one)")
	}
	if err := (fabric.Config{HostID: c.HostID}).Validate(); err != nil {
		bad("HostID", nil, "%v", err)
	}
	if err := (fabric.Config{SocketIfname: c.SocketIfname}).Validate(); err != nil {
		bad("SocketIfname", c.SocketIfname, "%v", err)
	}
	for _, issue := range c.RAS.AcceptNCCLBugs {
		if known := ncclras.Issues(); !slices.Contains(known, issue) {
			bad("RAS.AcceptNCCLBugs", issue, "the bugs of NCCL for which it isn't asked are %v", known)
		}
	}
	for _, at := range c.RAS.Join {
		if _, _, err := splitMachine(at); err != nil {
			bad("RAS.Join", c.RAS.Join, "want host or host:port, with commas between them")
			break
		}
	}
	urls := func(field string, list []string) {
		for _, text := range list { // none is shown: it may hold a password
			if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				bad(field, nil, "want URLs such as https://alerts.example.org/hook, with commas between them")
			}
		}
	}
	urls("RAS.Webhooks", c.RAS.Webhooks)
	urls("RAS.Alertmanagers", c.RAS.Alertmanagers)
	if _, err := readSecrets(c.HealthTokenFile); err != nil {
		bad("HealthTokenFile", c.HealthTokenFile, "%v", err)
	}
	secrets := func(field string, list []string) {
		for _, secret := range list {
			if len(secret) < minWebhookSecret {
				bad(field, nil, "a secret has %d bytes, want at least %d", len(secret), minWebhookSecret)
			}
		}
	}
	secrets("RAS.WebhookSecrets", c.RAS.WebhookSecrets)
	more, err := readSecrets(c.RAS.WebhookSecretFile)
	if err != nil {
		bad("RAS.WebhookSecretFile", c.RAS.WebhookSecretFile, "%v", err)
	}
	secrets("RAS.WebhookSecretFile", more)
	return all
}

// readSecrets reads the secrets of a file, one a line; none if path is empty.
func readSecrets(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if all := strings.Fields(string(text)); err != nil || len(all) > 0 {
		return all, err
	}
	return nil, errors.New("want one a line, and there is none")
}

// resolve applies the options to the defaults, and reads what files have.
func resolve(opts ...Option) (Config, error) {
	cfg := Default()
	var errs []error
	for _, o := range opts {
		errs = append(errs, o(&cfg))
	}
	err := errors.Join(errs...)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	tokens, err := readSecrets(cfg.HealthTokenFile)
	cfg.HealthAccess.Tokens = append(cfg.HealthAccess.Tokens, tokens...)
	secrets, alsoErr := readSecrets(cfg.RAS.WebhookSecretFile)
	cfg.RAS.WebhookSecrets = append(cfg.RAS.WebhookSecrets, secrets...)
	return cfg, errors.Join(err, alsoErr)
}

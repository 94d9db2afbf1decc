package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/runtime/algo"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/model"
)

//go:generate go test -run ^TestVariablesPage$ . -rewrite

// Config is the configuration of a process's runtime. Start from Default; FromEnv and With… options change it, and
// later ones win. A field's tags name the variables that FromEnv reads: env, and nccl for the one that it reads if
// env's is not set.
type Config struct {
	// World is the process's place in the job. Default: one rank, alone.
	World launch.World `env:"-"` // package launch reads it

	// Tape switches the flight recorder `on` or `off`; without it there are no traces, verdicts or post-mortems. If the
	// tape can't be written to its directory, the process warns and uses another directory, or runs without a tape;
	// with `required`, it doesn't start. Default: on.
	Tape Tape `env:"CARILLON_TAPE"`
	// TapeDir is the directory of the jobs' tapes. If it can't be written, tapes go to `/dev/shm/carillon-UID` or to
	// the directory for temporary files. Default: `/dev/shm/carillon-UID`.
	TapeDir string `env:"CARILLON_TAPE_DIR"`
	// TapeSize is the maximum size of a process's tape, such as `1MiB`. The tape is smaller if this is more than an
	// eighth of the free space, even after the tapes of ended jobs have been removed. Default: 6.4 MiB.
	TapeSize Size `env:"CARILLON_TAPE_SIZE"`
	// TapeDevices is the number of communicators on GPUs that the tape has room for at the same time; each takes 4 KiB.
	// Default: 16 with an NVIDIA driver, else 0.
	TapeDevices int `env:"CARILLON_TAPE_DEVICES"`
	// TapeKeep is the number of ended jobs whose tapes are kept when a job starts, or `off` to keep all. Default: 20,
	// or fewer if there is no room, and all in a directory that CARILLON_TAPE_DIR names.
	TapeKeep string `env:"CARILLON_TAPE_KEEP"`

	// Health is the address of the health endpoint, `host:port`, which serves `/livez`, `/readyz`, `/healthz`,
	// `/metrics`, `/api/v1/ras` and a page. Port 0 picks a free port; `off` (in Go, an empty string) means no endpoint.
	// On loopback, only the process's user and root get answers; other users of the host get a yes or no from `/livez`
	// and `/readyz`. Beyond loopback it needs a token or client certificates. Default: `127.0.0.1:0`.
	Health string `env:"CARILLON_HEALTH_ADDR"`
	// HealthAccess says which clients the endpoint answers. Default: this process's user and root, on loopback.
	HealthAccess health.Access
	// HealthTokenFile is a file with more tokens for the health endpoint, one per line.
	HealthTokenFile string `env:"CARILLON_HEALTH_TOKEN_FILE"`
	// HealthProxies are the proxies whose `X-Forwarded-For` the health endpoint trusts: addresses or networks
	// (`10.0.0.0/8`), separated by commas.
	HealthProxies []netip.Prefix `env:"CARILLON_HEALTH_TRUSTED_PROXIES"`
	// MinPollInterval is the minimum time between two queries by one client for the same document (`/api/v1/ras`,
	// `ranks`, `comms` or `verdicts`), after a burst of 20; an earlier query gets 429. `off`: no limit. Default: 1s.
	MinPollInterval time.Duration `env:"CARILLON_RAS_MIN_POLL_INTERVAL"`

	// GPU chooses the GPUs to watch for Xids, memory errors and throttling: `on` for those of CUDA_VISIBLE_DEVICES,
	// `all` for all of the host, `off` for none. Without an NVIDIA driver, none is watched. Default: on.
	GPU GPUs `env:"CARILLON_GPU"`

	// Device puts the process's rank on a GPU: the one in CUDA_VISIBLE_DEVICES that has its local rank's index. Unless
	// the program sets a Fallback, NCCL carries the communicators that Carillon's kernels can't join. Default, nil: the
	// rank is on no GPU, and the driver is not loaded.
	Device *enginecuda.Options

	// SlowThreshold is the age from which an operation in flight is shown in its trace, or twice the normal time of its
	// kind of operation if that is longer. An operation that takes longer than this always has a span. `off`: only
	// stalled operations are shown. Default: 1s.
	SlowThreshold time.Duration `env:"CARILLON_SLOW_THRESHOLD"`
	// StallThreshold is the age from which an operation or act (an init, a split, …) that has not ended is reported as
	// stalled, repeatedly, in its trace, in metrics and by RAS; or eight times the normal time of its kind if that is
	// longer. `off`: never. Default: 5s.
	StallThreshold time.Duration `env:"CARILLON_STALL_THRESHOLD"`

	// RAS configures the process's part in the diagnosis of the job.
	RAS RAS

	// Signals makes SIGTERM export the remaining telemetry, for at most 2 seconds, before it ends the process. A
	// program that handles SIGTERM itself should switch this `off` and stop the node; otherwise it gets the signal
	// twice. It applies to Start only: Module leaves signals to fx. Default: on.
	Signals bool `env:"CARILLON_SIGNALS"`

	// Blocking makes all communicators blocking. Default: as requested in code.
	Blocking bool `env:"CARILLON_COMM_BLOCKING" nccl:"NCCL_COMM_BLOCKING"`
	// Algorithm is the algorithm to use wherever it is applicable. Default: chosen by size and topology.
	Algorithm algo.Algorithm `env:"CARILLON_ALGO"`
	// Fabric configures the connections between ranks.
	Fabric fabric.Config
	// SIMD is the highest instruction set that the process's reductions may use: `avx512`, `avx2`, `off`. Default: the
	// highest that the processor has.
	SIMD kernels.SIMD `env:"CARILLON_SIMD"`

	// ProfilerPlugins are NCCL profiler plug-ins, versions 1 to 7, that are told what communicators do: paths of
	// libraries, separated by commas. A plug-in that can't be loaded, fails or is too slow is left out, which is
	// logged, and the process continues. Default: none.
	ProfilerPlugins []string `env:"CARILLON_PROFILER_PLUGIN"`

	// LogLevel is the lowest level that is logged: `debug`, `info`, `warn`, `error`, `off`; NCCL_DEBUG takes NCCL's
	// levels (`VERSION`, `WARN`, `INFO`, `TRACE`). A collector that OTEL_* variables name always gets INFO and above.
	// Default: warn.
	LogLevel Level `env:"CARILLON_LOG" nccl:"NCCL_DEBUG"`
	// LogVersion logs the version at any LogLevel, as any value of NCCL_DEBUG does.
	LogVersion bool
	// LogSubsystems chooses the subsystems whose lines below WARN are logged, by NCCL's names (`INIT`, `BOOTSTRAP`,
	// `GRAPH`, `NET`, `COLL`, `DESTROY`, `ENV`, `RAS`), `ALL`, or `^` and the names to leave out; `COLL` logs a line
	// for each operation. Default: `INIT,BOOTSTRAP,ENV,DESTROY,RAS`.
	LogSubsystems logsink.Subsystems `env:"NCCL_DEBUG_SUBSYS"`
	// LogFile is the file to which log lines are written; `%h` stands for the host, `%p` for the process id, `%%` for a
	// %. Default: standard error.
	LogFile string `env:"NCCL_DEBUG_FILE"`
	// LogFormat is the format of the log lines in that file or on standard error: `text` or `json`. Default: text.
	LogFormat logsink.Format `env:"CARILLON_LOG_FORMAT"`
	// Log gets the log lines instead of LogFile and standard error, and filters their levels; nil for none.
	Log *slog.Logger

	// Registerer is the program's registry. Carillon's metrics are registered there, without go_* and process_*, until
	// Stop. Several nodes of a process need one each, such as those of prometheus.WrapRegistererWith. The program
	// exports the metrics: OTEL_METRICS_EXPORTER is ignored. Default, nil: the metrics are at the health endpoint, with
	// go_* and process_*, and exported as OTEL_* variables say.
	Registerer prometheus.Registerer
	// Resource describes the program in exported spans, metrics and log records. Its attributes override Carillon's
	// (the service name, the rank) and those of OTEL_* variables.
	Resource *resource.Resource
	// SpanProcessors get the spans when they end, with Carillon's ids; they must not block. Stop flushes them, and the
	// program shuts them down after that. If there are any SpanProcessors or SpanExporters, Carillon makes no exporter
	// of its own, not even the one that OTEL_* variables name.
	SpanProcessors []sdktrace.SpanProcessor
	// SpanExporters get the spans in batches. The program shuts them down after Stop.
	SpanExporters []sdktrace.SpanExporter
	// Checks are the program's own checks for /livez and /readyz; Node.Checks adds more later.
	Checks []Check
	// Routes are the program's own routes at the health endpoint.
	Routes []health.Route
	// Observers get the events of the process's communicators.
	Observers []Observer
	// Profilers are plug-ins that are told of groups, collectives, sends and receives, in NCCL's event model.
	Profilers []profiler.Plugin

	applied []variable // those that FromEnv found
	unknown []string   // a sentence for each variable that FromEnv ignored

	tick time.Duration // tape.Follow's; 0 but in tests
	scan time.Duration // how often an agent looks for new tapes; 0 but in tests: scanInterval
}

// RAS configures a process's part in the diagnosis of its job, and the receivers of verdicts besides the clients of the
// health endpoint.
type RAS struct {
	// On makes the process take part in RAS; without a tape it never does. Default: on.
	On bool `env:"CARILLON_RAS"`
	// Addr is the `host:port` at which the process listens for the job's other processes, UDP and TCP. Default: a free
	// port, on loopback if the launcher says that all ranks are on this host, else at the fabric's address.
	Addr string `env:"CARILLON_RAS_ADDR"`
	// Seeds are addresses of some of the job's other processes, separated by commas. Processes of one host find each
	// other by files beside their tapes, and those of different hosts when their first communicator begins: seeds are
	// for a job that hangs before that. Default: none.
	Seeds []netip.AddrPort `env:"CARILLON_RAS_SEEDS"`
	// Join are machines on which `carillon agent` looks for the agents of a job's other machines: `host` or
	// `host:port`, separated by commas. Some of the machines are enough. Default: rank 0's, as the environment of the
	// ranks says.
	Join []string `env:"CARILLON_RAS_JOIN"`
	// Network is what lies between the job's processes, which decides how long an answer may take: `host`, `lan`,
	// `wan`. Default: as the launcher says.
	Network Network `env:"CARILLON_RAS_NETWORK"`

	// AcceptNCCLBugs are numbers of ncclras.Bugs whose risk an Agent accepts. An Agent queries NCCL's own RAS about
	// ranks without a tape on its host, unless that NCCL version is known to crash when queried. Default: none.
	AcceptNCCLBugs []int `env:"-"` // carillon agent has a flag

	// Webhooks are URLs to which verdicts and events of GPUs are posted, as CloudEvents, separated by commas.
	Webhooks []string `env:"CARILLON_RAS_WEBHOOKS" secret:"true"`
	// WebhookSecrets are secrets that sign the posts to webhooks, with HMAC-SHA256 as in Standard Webhooks. The
	// variable has one.
	WebhookSecrets []string `env:"CARILLON_RAS_WEBHOOK_SECRET" envSeparator:"\n" secret:"true"`
	// WebhookSecretFile is a file with more such secrets, one per line.
	WebhookSecretFile string `env:"CARILLON_RAS_WEBHOOK_SECRET_FILE"`
	// Alertmanagers are URLs of the Alertmanagers of one cluster, separated by commas, in which open verdicts are
	// alerts. A verdict that is no longer updated, as when a crash ends the job, stays an alert for at least five
	// minutes, so that somebody is notified.
	Alertmanagers []string `env:"CARILLON_RAS_ALERTMANAGERS" secret:"true"`
}

// Level is a level of log lines.
type Level slog.Level

// Default is the configuration without environment or options.
func Default() Config {
	return Config{
		World: launch.World{Size: 1, LocalSize: 1, Launcher: launch.None},
		Tape:  TapeOn, Health: "127.0.0.1:0", MinPollInterval: health.DefaultMinPollInterval, RAS: RAS{On: true},
		SlowThreshold: model.DefaultSlow, StallThreshold: model.DefaultFloor,
		Fabric:  fabric.Config{Keepalive: fabric.DefaultKeepalive},
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

// WithRegisterer shows Carillon's metrics in the program's registry; see Config.Registerer.
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

// WithProfiler adds plug-ins; see Config.Profilers.
func WithProfiler(p ...profiler.Plugin) Option {
	return set(func(c *Config) { c.Profilers = append(c.Profilers, p...) })
}

// WithHealth sets the address of the health endpoint; empty is none.
func WithHealth(addr string) Option { return set(func(c *Config) { c.Health = addr }) }

// WithNCCLBugs makes an Agent query NCCL in spite of bugs; see RAS.AcceptNCCLBugs.
func WithNCCLBugs(accept ...int) Option {
	return set(func(c *Config) { c.RAS.AcceptNCCLBugs = append(c.RAS.AcceptNCCLBugs, accept...) })
}

// WithJoin sets where agents of other machines are; see RAS.Join.
func WithJoin(machines ...string) Option { return set(func(c *Config) { c.RAS.Join = machines }) }

// WithoutTape switches the flight recorder off, and with it everything that reads the tape: traces and most metrics.
func WithoutTape() Option { return set(func(c *Config) { c.Tape = TapeOff }) }

// WithTapeDir sets where jobs' tapes are kept.
func WithTapeDir(dir string) Option { return set(func(c *Config) { c.TapeDir = dir }) }

// WithGPU puts the process's rank on a GPU, which Node.GPU then returns; see Config.Device. Start fails if there is
// none.
func WithGPU(o enginecuda.Options) Option { return set(func(c *Config) { c.Device = &o }) }

// WithSignals says whether Start makes SIGTERM export the remaining telemetry before it ends the process; see
// Config.Signals.
func WithSignals(on bool) Option { return set(func(c *Config) { c.Signals = on }) }

// resolve applies the options to the defaults, and reads the files that they name.
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

package node

import (
	"context"
	"log/slog"

	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// newSink opens the logs that cfg describes and makes cfg.Log their logger.
func newSink(ctx context.Context, cfg *Config) *logsink.Sink {
	log := logsink.Config{
		Level: slog.Level(cfg.LogLevel), Version: cfg.LogVersion, Subsystems: cfg.LogSubsystems, File: cfg.LogFile,
		Format: cfg.LogFormat, Release: Version(),
		Resource: trace.Resource(ctx, trace.Config{
			Version: Version(), Job: cfg.World.Job, Rank: cfg.World.Rank, Resource: cfg.Resource,
			Logger: slog.New(slog.DiscardHandler), // warned of later
		}),
	}
	if cfg.Log != nil {
		log.Handler = cfg.Log.Handler()
	}
	if cfg.World.Rank >= 0 { // an Agent has no rank
		log.Attrs = []slog.Attr{slog.Int(semconv.LogRank, cfg.World.Rank)}
	}
	sink := logsink.New(ctx, log)
	cfg.Log = sink.Logger()
	for _, v := range cfg.applied {
		if v.secret {
			continue
		}
		cfg.Log.LogAttrs(ctx, slog.LevelInfo, semconv.LogMessageEnv, slog.String(semconv.LogEnvName, v.name),
			slog.String(semconv.LogEnvValue, v.value), slog.String(semconv.LogSubsystem, semconv.SubsystemEnv))
	}
	for _, text := range cfg.unknown {
		cfg.Log.LogAttrs(ctx, slog.LevelWarn, text, slog.String(semconv.LogSubsystem, semconv.SubsystemEnv))
	}
	if doubt := cfg.World.Doubt; doubt != "" {
		cfg.Log.LogAttrs(ctx, slog.LevelWarn, "this process is a world of one rank; "+doubt,
			slog.String(semconv.LogSubsystem, semconv.SubsystemEnv))
	}
	return sink
}

// logsOperations tells whether each operation gets a line, so that the tape's followers need all operations.
func (s *settings) logsOperations() bool { return s.sink.Wants(slog.LevelInfo, semconv.SubsystemColl) }

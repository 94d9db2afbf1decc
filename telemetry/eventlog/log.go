package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Config says what a Log writes, and where. Zero fields take the defaults named in their comments.
type Config struct {
	// Handler gets the lines, from the goroutine that follows the tape: it must not block. Required.
	Handler slog.Handler

	// Wall turns a time of the tape (CLOCK_MONOTONIC, nanoseconds) into a time of day, as tape.Header.Wall does.
	// Required.
	Wall func(mono int64) time.Time

	// SpanOf and SpanOfStall return the span of a step and of a stall, as trace.Projector does; nil leaves lines
	// without one.
	SpanOf      func(s *model.Step) oteltrace.SpanContext
	SpanOfStall func(r *stall.Report) oteltrace.SpanContext

	// Operations says to log also operations that ended well. There may be a million a second.
	Operations bool

	// AlgorithmName names the algorithms of tape.OpRecord; nil, or "" for an algorithm, leaves it out.
	AlgorithmName func(uint8) string

	// JobRank adds the rank in the job to lines, if the model knows it: the handler doesn't add it.
	JobRank bool

	// Version is Carillon's. It is logged once, at the first init of a rank 0, as in NCCL.
	Version string
	// VersionLevel is the level of that line. The zero value is INFO.
	VersionLevel slog.Level

	// RefusedLevel is the level of a refused call. The zero value is INFO, as its caller gets the error with both call
	// sites; NCCL's callers get a number.
	RefusedLevel slog.Level
}

// Log writes the lines of one process. It belongs to the model's owner.
type Log struct {
	cfg           Config
	versionLogged bool
	leaks         map[leak]uint64
}

// leak is what leaks of communicators in a loop have in common: the rank, and the line of the program that made them.
type leak struct {
	rank int
	file string
	line int
}

// New makes a Log.
func New(cfg Config) (*Log, error) {
	switch {
	case cfg.Handler == nil:
		return nil, errors.New("eventlog: Config.Handler is nil; give it the handler of a slog.Logger")
	case cfg.Wall == nil:
		return nil, errors.New("eventlog: Config.Wall is nil; give it the tape's Header.Wall")
	}
	return &Log{cfg: cfg, leaks: map[leak]uint64{}}, nil
}

// Observe takes the next step of the model. It reads s only during the call. A step without a line costs nanoseconds.
func (l *Log) Observe(s *model.Step) {
	if !s.IsLife {
		r := &s.Event.Op
		if r.Stage == tape.StageEnd && (l.cfg.Operations || r.Code != lifecycle.CodeOK) &&
			r.Signature.Call.IsOperation() {
			l.log(s, levelOf(r.Code), semconv.CallSpan(r.Signature.Call))
		}
		return
	}
	switch r := &s.Life; r.Stage {
	case tape.StageStart:
		l.logVersion(s)
		l.log(s, slog.LevelDebug, semconv.ActSpan(r.Act)+semconv.StartedSuffix)
	case tape.StagePhase:
		if r.Phase == tape.PhaseNone {
			return // only the phase before is over
		}
		level := slog.LevelDebug
		if r.Text != "" {
			level = slog.LevelInfo // out of the ordinary
		}
		l.log(s, level, semconv.ActSpan(r.Act)+semconv.PhaseSeparator+r.Phase.String()+semconv.StartedSuffix)
	case tape.StageEnd:
		if r.Act == tape.ActNone {
			l.log(s, levelOf(r.Code), semconv.SpanFailure)
		} else {
			l.log(s, levelOf(r.Code), semconv.ActSpan(r.Act))
		}
	case tape.StageMisuse:
		level := levelOf(r.Code)
		if level == slog.LevelInfo {
			level = l.cfg.RefusedLevel
		}
		if r.Act == tape.ActGroup && r.Call == lifecycle.CallGroupStart {
			level = slog.LevelWarn // it was never ended, and no call returns that error
		}
		n, _ := r.Refused()
		if r.Code == lifecycle.CodeLeaked {
			of := leak{s.Info().Rank, r.Site.File, r.Site.Line}
			l.leaks[of]++
			if n = l.leaks[of]; n&(n-1) != 0 {
				return
			}
		}
		l.log(s, level, semconv.LifeSpan(r), appendIf(nil, n > 1, slog.Uint64(semconv.LogTimes, n))...)
	default: // a life record has no other
	}
}

// ObserveStall takes a report of an operation or act that takes, or took, too long. It reads r only during the call. A
// stall is logged when it begins and when it has ended, at one level; the reports in between are left out.
func (l *Log) ObserveStall(r *stall.Report) {
	ctx := context.Background()
	level := slog.LevelInfo
	if r.Count > 0 {
		level = slog.LevelWarn
	}
	if r.Stage == stall.Stalled && r.Count > 1 || !l.cfg.Handler.Enabled(ctx, level) {
		return
	}
	if l.cfg.SpanOfStall != nil {
		ctx = oteltrace.ContextWithSpanContext(ctx, l.cfg.SpanOfStall(r))
	}
	var buf [24]slog.Attr
	attrs := append(l.commAttrs(buf[:0], r.Comm, &r.Comm.CommInfo), slog.String(semconv.LogCall, r.Kind()))
	if r.Act == tape.ActNone {
		attrs = signature(append(attrs, slog.Uint64(semconv.LogSeq, r.Seq)), &r.Op)
	} else {
		attrs = append(attrs, slog.Uint64(semconv.LogSeq, r.ActSeq))
	}
	attrs = phase(attrs, r.Phase)
	attrs = appendIf(attrs, r.Wait >= 0, slog.Int(semconv.LogWait, int(r.Wait)))
	attrs = append(attrs, slog.Duration(semconv.LogAge, words.Round(r.Age())))
	attrs = appendIf(attrs, r.Normal > 0, slog.Duration(semconv.LogNormal, words.Round(r.Normal)))
	attrs = append(attrs, slog.String(semconv.LogSubsystem, semconv.SubsystemRAS))
	message := semconv.SpanStall
	if r.Stage != stall.Stalled { // the name says that
		message += " (" + r.Stage.String() + ")"
	}
	l.emit(ctx, level, r.Now, message, attrs...)
}

// levelOf is the level of an end: INFO if a caller gets the result; DEBUG for a postponed call, which is often repeated
// in a loop; WARN for a leak, which no call returns.
func levelOf(code lifecycle.Code) slog.Level {
	switch code {
	case lifecycle.CodeLeaked:
		return slog.LevelWarn
	case lifecycle.CodeInProgress:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

// logVersion logs the version, once.
func (l *Log) logVersion(s *model.Step) {
	if l.versionLogged || s.Life.Act != tape.ActInit || s.Info().Rank != 0 {
		return
	}
	l.versionLogged = true
	l.emit(context.Background(), l.cfg.VersionLevel, s.Life.Time, semconv.LogMessageVersion,
		slog.String(semconv.LogVersion, l.cfg.Version), slog.String(semconv.LogGoVersion, runtime.Version()))
}

// log writes a line for a moment of an act, a refused call, or the end of an operation.
func (l *Log) log(s *model.Step, level slog.Level, name string, more ...slog.Attr) {
	ctx := context.Background()
	if !l.cfg.Handler.Enabled(ctx, level) {
		return
	}
	if l.cfg.SpanOf != nil {
		ctx = oteltrace.ContextWithSpanContext(ctx, l.cfg.SpanOf(s))
	}
	var buf [24]slog.Attr
	attrs := l.commAttrs(buf[:0], s.Comm, s.Info())
	at, from := s.Event.Op.Time, semconv.SubsystemColl
	if s.IsLife {
		at, from = s.Life.Time, subsystem(&s.Life)
		attrs = lifeAttrs(attrs, s)
	} else {
		attrs = l.opAttrs(attrs, &s.Event.Op)
	}
	attrs = append(append(attrs, more...), slog.String(semconv.LogSubsystem, from))
	l.emit(ctx, level, at, name, attrs...)
}

func (l *Log) emit(ctx context.Context, level slog.Level, at int64, message string, attrs ...slog.Attr) {
	if !l.cfg.Handler.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(l.cfg.Wall(at), level, message, 0)
	r.AddAttrs(attrs...)
	_ = l.cfg.Handler.Handle(ctx, r) // the handler counts lost lines
}

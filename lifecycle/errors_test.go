package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

var sentinels = map[Code]error{
	CodeInProgress: ErrInProgress, CodeInvalidArgument: ErrInvalidArgument, CodeInvalidUsage: ErrInvalidUsage,
	CodeInitializing: ErrInitializing, CodeFinalized: ErrFinalized, CodeDestroyed: ErrDestroyed,
	CodeAborted: ErrAborted,
	CodeFailed:  ErrFailed, CodeRevoked: ErrRevoked, CodeLeaked: ErrLeaked, CodeUnfinished: ErrUnfinished,
	CodeRankDead: ErrRankDead, CodeNotJoined: ErrNotJoined, CodeMismatch: ErrMismatch, CodeAbandoned: ErrAbandoned,
	CodePeerAborted: ErrPeerAborted, CodeUnreachable: ErrUnreachable, CodeAuth: ErrAuth, CodeSystem: ErrSystem,
	CodeTimeout:  ErrTimeout,
	CodeCanceled: ErrCanceled,
	CodeInternal: ErrInternal,
}

func TestEveryCodeHasItsSentinel(t *testing.T) {
	for _, code := range Codes()[1:] {
		if sentinels[code] == nil {
			t.Errorf("%v has no sentinel", code)
		}
		for _, err := range []error{
			&UsageError{Code: code}, &PeerError{Code: code}, &SystemError{Code: code},
			sentinels[code],
		} {
			wrapped := fmt.Errorf("training step 3: %w", err)
			if got := CodeOf(wrapped); got != code {
				t.Errorf("CodeOf(%T of %v) = %v", err, code, got)
			}
			for other, sentinel := range sentinels {
				if got := errors.Is(wrapped, sentinel); got != (other == code) {
					t.Errorf("errors.Is(%T of %v, the sentinel of %v) = %v", err, code, other, got)
				}
			}
		}
	}
}

func TestErrorsAs(t *testing.T) {
	peer := &PeerError{Code: CodeRankDead, Rank: 3, Err: io.ErrUnexpectedEOF}
	var err error = &UsageError{Code: CodeFailed, Cause: &SystemError{Code: CodeSystem, Err: peer}}
	var p *PeerError
	if !errors.As(err, &p) || p.Rank != 3 {
		t.Errorf("the dead rank is not found in %v", err)
	}
	for _, inside := range []error{ErrFailed, ErrSystem, ErrRankDead, io.ErrUnexpectedEOF} {
		if !errors.Is(err, inside) {
			t.Errorf("errors.Is(%v, %v) is false", err, inside)
		}
	}
	if got := CodeOf(err); got != CodeFailed {
		t.Errorf("CodeOf = %v; want that of the outermost error, failed", got)
	}
}

func TestCodeOfForeignErrors(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(io.EOF)
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, CodeOK},
		{ctx.Err(), CodeCanceled},
		{fmt.Errorf("all_reduce: %w", context.DeadlineExceeded), CodeTimeout},
		{io.EOF, CodeSystem},
		{errors.Join(io.EOF, ErrAuth), CodeAuth},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %v; want %v", c.err, got, c.want)
		}
	}
}

func TestMismatchDetail(t *testing.T) {
	e := &PeerError{Code: CodeMismatch, Rank: 3, Name: "dp", Detail: "count: rank 0 says 1, rank 3 says 2"}
	if got := MismatchDetail(e.Error()); got != e.Detail {
		t.Errorf("the detail of %q is %q", e.Error(), got)
	}
	if got := MismatchDetail(io.EOF.Error()); got != io.EOF.Error() {
		t.Errorf("of another error it is %q", got)
	}
}

func TestErrorTexts(t *testing.T) {
	var (
		comm   = CommID{0x9f, 0x86, 0xd0, 0x81, 0x88, 0x4c, 0x7d, 0x65, 1}
		moment = time.Date(2026, 3, 1, 12, 0, 1, 500e6, time.UTC)
		train  = Site{Func: "main.train", File: "/job/train.go", Line: 42, Goroutine: 7, Time: moment}
		tidy   = Site{Func: "main.tidy", File: "/job/train.go", Line: 80, Goroutine: 1, Time: moment.Add(time.Second)}
	)
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			&UsageError{
				Call: CallDestroy, Code: CodeDestroyed, State: StateDestroyed, Comm: comm, Name: "dp", Rank: 2,
				Site: tidy, First: train, Detail: "do it once",
			},
			`destroy on communicator "dp" (9f86d081884c7d65, rank 2) at main.tidy (train.go:80), goroutine 1: it was ` +
				`already destroyed by main.train (train.go:42), goroutine 7, at 2026-03-01 12:00:01.500; do it once`,
		},
		{
			&UsageError{Call: CallAllReduce, Code: CodeFailed, Comm: comm, Cause: io.EOF, Detail: "make a new one"},
			`all_reduce on communicator (9f86d081884c7d65, rank 0): it has failed (EOF); make a new one`,
		},
		{
			&UsageError{Call: CallInitRank, Code: CodeInvalidArgument, Detail: "rank is 4; allowed is 0 to 3"},
			`init_rank: invalid argument: rank is 4; allowed is 0 to 3`,
		},
		{&UsageError{Code: CodeInvalidUsage}, `invalid usage`},
		{
			&UsageError{Call: CallGroupEnd, Code: CodeInvalidUsage, First: Site{
				Func: "main.train", File: "/src/train.go",
				Line: 7,
			}, Detail: "it has ended"},
			`group_end: invalid usage: it has ended; the first was made by main.train (train.go:7)`,
		},
		{
			&UsageError{Call: CallBarrier, Code: CodeAborted, Site: Site{Time: moment}, First: Site{Time: moment}},
			`barrier: it was already aborted at 2026-03-01 12:00:01.500`,
		},
		{
			&UsageError{Call: CallBarrier, Code: CodeAborted, First: Site{Func: "main.stop", File: "stop.go", Line: 3}},
			`barrier: it was already aborted by main.stop (stop.go:3)`,
		},
		{
			&PeerError{
				Code: CodeRankDead, Rank: 3, Comm: comm, Name: "dp", Self: 1, Seq: 17, Call: CallAllReduce,
				Since: moment, Detail: "pid 4711 was killed by signal 9",
			},
			`all_reduce (operation 17) on communicator "dp" (9f86d081884c7d65, rank 1): the process of rank 3 of ` +
				`"dp" has ended: pid 4711 was killed by signal 9, waited for since 2026-03-01 12:00:01.500; find the ` +
				`reason in that rank's output`,
		},
		{
			&PeerError{Code: CodeUnreachable, Rank: -1, Err: io.EOF},
			`the connection to a peer broke (EOF); see whether that rank's host is up and can be reached from here`,
		},
		{
			&PeerError{Code: CodeTimeout, Rank: 2, Call: CallBarrier, Err: context.DeadlineExceeded},
			`barrier: waiting for rank 2: the context's time was up first (context deadline exceeded); find what ` +
				`that rank is doing, or give the context more time`,
		},
		{
			&SystemError{Code: CodeSystem, Op: "create tape /tmp/x", Err: io.ErrShortWrite},
			`create tape /tmp/x: short write`,
		},
		{&SystemError{Code: CodeSystem}, `system error`},
		{
			&SystemError{Code: CodeCanceled, Op: "wait for rank 3", Err: context.Canceled},
			`wait for rank 3: the context was canceled first: context canceled`,
		},
		{
			&SystemError{Code: CodeInternal, Op: "plan"},
			`plan: internal error; this is a bug in Carillon, please report it`,
		},
		{ErrDestroyed, `carillon: destroyed`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("the text is\n %s\nwant\n %s", got, c.want)
		}
	}
}

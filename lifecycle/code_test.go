package lifecycle

import (
	"regexp"
	"testing"
)

var snake = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

func TestNames(t *testing.T) {
	check := func(kind string, number int, name string, seen map[string]int) {
		t.Helper()
		if !snake.MatchString(name) {
			t.Errorf("%s %d is called %q; want a snake-case name", kind, number, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s %d and %d are both called %q", kind, other, number, name)
		}
		seen[name] = number
	}
	states, calls, events, codes := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range States() {
		check("state", int(s), s.String(), states)
	}
	for _, c := range Calls() {
		check("call", int(c), c.String(), calls)
	}
	for _, e := range Events() {
		check("event", int(e), e.String(), events)
	}
	for _, c := range Codes() {
		check("code", int(c), c.String(), codes)
	}
	for got, want := range map[string]string{
		StateReady.String():        "ready",
		StateDestroying.String():   "destroying",
		StateRevoked.String():      "revoked",
		CallInitRank.String():      "init_rank",
		CallAllReduce.String():     "all_reduce",
		CallBarrier.String():       "barrier",
		EventInitDone.String():     "init_done",
		EventAsyncFailure.String(): "async_failure",
		CodeRankDead.String():      "rank_dead",
		CallNone.String():          "none",
		EventNone.String():         "none",
		State(200).String():        "state(200)",
		Call(200).String():         "call(200)",
		Event(200).String():        "event(200)",
		Code(999).String():         "code(999)",
	} {
		if got != want {
			t.Errorf("a name is %q; want %q", got, want)
		}
	}
}

func TestCodeNCCL(t *testing.T) {
	for code, want := range map[Code]int{
		CodeOK: 0, CodeSystem: 2, CodeInternal: 3, CodeInvalidArgument: 4, CodeDestroyed: 5, CodeFailed: 5,
		CodeRankDead: 6, CodeTimeout: 6,
		CodeCanceled:   6,
		CodeInProgress: 7, Code(999): 3,
	} {
		if got := code.NCCL(); got != want {
			t.Errorf("%v.NCCL() = %d; want %d", code, got, want)
		}
	}
	for _, code := range Codes() {
		if n := code.NCCL(); (n == 0) != (code == CodeOK) || n < 0 || n > 7 {
			t.Errorf("%v.NCCL() = %d; success is CodeOK's alone, and ncclResult_t ends at 7", code, n)
		}
	}
}

func TestIsOperation(t *testing.T) {
	for _, c := range Calls() {
		if want := c >= CallAllReduce; c.IsOperation() != want {
			t.Errorf("%v.IsOperation() = %v", c, c.IsOperation())
		}
	}
	if CallNone.IsOperation() || Call(200).IsOperation() {
		t.Error("a call that does not exist is an operation")
	}
}

package postmortem

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// numbered is a name and a number. The number is left out if it is 0, as for acts that happen once, or if the ranks
// don't agree on it.
func numbered(name string, seq uint64) string {
	own := name == tape.ActGroup.String() || name == tape.ActSplit.String()
	if seq == 0 || own && seq > tape.Unagreed {
		return name
	}
	return name + " " + strconv.FormatUint(seq, 10)
}

// describe says what an operation moves: "4 MiB float32 sum"; empty for other calls.
func describe(sig tape.Signature) string {
	if !sig.Call.IsOperation() || sig.Call == lifecycle.CallBarrier {
		return ""
	}
	text := humanize.IBytes(sig.Bytes) + " " + kernels.DataType(sig.DataType).String()
	if sig.Call.Reduces() {
		text += " " + kernels.Reduction(sig.Reduction).String()
	}
	switch {
	case sig.Call.IsRooted():
		text += fmt.Sprintf(", root %d", sig.Peer)
	case sig.Call == lifecycle.CallSend:
		text += fmt.Sprintf(" to rank %d", sig.Peer)
	case sig.Call == lifecycle.CallRecv:
		text += fmt.Sprintf(" from rank %d", sig.Peer)
	}
	return text
}

// span is a duration of so many nanoseconds.
func span(ns int64) string { return words.Round(time.Duration(ns)).String() }

// atMost is the upper bound of a histogram's bucket.
func atMost(d time.Duration) string {
	if d < 0 {
		return "> " + span(int64(tape.DurationBound(tape.DurationBuckets-2)))
	}
	return "≤ " + span(int64(d))
}

// sizeText is a class of sizes by its upper bound; empty for calls without a size.
func sizeText(upTo uint64) string {
	switch upTo {
	case 0:
		return ""
	case math.MaxUint64:
		return "more than " + humanize.IBytes(classBound(tape.SizeClasses-2))
	}
	return "up to " + humanize.IBytes(upTo)
}

// number is a number with thousands separators.
func number(n uint64) string { return humanize.Comma(int64(min(n, math.MaxInt64))) }

// count is "1 tape" or "3 tapes".
func count(n int, what string) string {
	return number(uint64(max(n, 0))) + " " + english.PluralWord(n, what, "")
}

// clockTime is a time of day, as events and sentences write it.
func clockTime(t time.Time) string { return t.Format("15:04:05.000000") }

// label names a member by its rank in the job if that is known, else by the one in its communicator.
func (m *member) label() string {
	if rank := m.knownRank(); rank >= 0 {
		return "rank " + strconv.Itoa(rank)
	}
	return fmt.Sprintf("rank %d of %s", m.Rank, m.name())
}

// name names the process in a sentence: "rank 2 (host-a, pid 4711)".
func (p *process) name() string {
	where := fmt.Sprintf("%s, pid %d", words.Line(p.header.Host), p.header.KnownPID())
	if p.rank < 0 {
		return fmt.Sprintf("a process (%s)", where)
	}
	return fmt.Sprintf("rank %d (%s)", p.rank, where)
}

// knownRank is the member's rank in the job; -1 if that isn't known.
func (m *member) knownRank() int {
	if m.proc.rank >= 0 {
		return m.proc.rank
	}
	return m.proc.model.JobRank(m.Of, 0)
}

// jobRank is the member's rank in the job if that is known, else in its communicator.
func (m *member) jobRank() int {
	if rank := m.knownRank(); rank >= 0 {
		return rank
	}
	return m.Rank
}

// clause is a tape's text as a part of a sentence.
func clause(text string) string { return strings.TrimSuffix(words.Line(text), ".") }

// capital is s with a capital first letter.
func capital(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

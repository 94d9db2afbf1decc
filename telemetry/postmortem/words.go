package postmortem

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// name is what the call is called: "all_reduce", "init".
func (d *doing) name() string {
	if d.act != tape.ActNone {
		return d.act.String()
	}
	return d.call.String()
}

// title is the call with its number and communicator: "all_reduce 17 of world".
func (d *doing) title() string {
	return numbered(d.name(), d.seq) + " of " + d.m.name()
}

// numbered puts a number behind a name; acts that happen once have 0.
func numbered(name string, seq uint64) string {
	if seq == 0 {
		return name
	}
	return name + " " + strconv.FormatUint(seq, 10)
}

// describe says what an operation moves: "4 MiB float32 sum"; nothing for an act.
func describe(sig tape.Signature, a tape.Act) string {
	if a != tape.ActNone || !sig.Call.IsOperation() || sig.Call == lifecycle.CallBarrier {
		return ""
	}
	parts := []string{bytesText(sig.Bytes), kernels.DataType(sig.DataType).String()}
	switch sig.Call {
	case lifecycle.CallAllReduce, lifecycle.CallReduce, lifecycle.CallReduceScatter:
		parts = append(parts, kernels.Reduction(sig.Reduction).String())
	default:
	}
	text := strings.Join(parts, " ")
	switch sig.Call {
	case lifecycle.CallBroadcast, lifecycle.CallReduce, lifecycle.CallGather, lifecycle.CallScatter:
		text += fmt.Sprintf(", root %d", sig.Peer)
	case lifecycle.CallSend:
		text += fmt.Sprintf(" to rank %d", sig.Peer)
	case lifecycle.CallRecv:
		text += fmt.Sprintf(" from rank %d", sig.Peer)
	default:
	}
	return text
}

// bytesText is a size with two or three digits and a binary unit.
func bytesText(n uint64) string {
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B"
	}
	v, units := float64(n)/1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + units[0]
}

// span is a duration of so many nanoseconds with three digits or so.
func span(ns int64) string {
	d := time.Duration(ns)
	switch a := d.Abs(); {
	case a >= time.Minute:
		d = d.Round(time.Second)
	case a >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case a >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	case a >= time.Microsecond:
		d = d.Round(10 * time.Nanosecond)
	}
	return d.String()
}

// atMost is a bound of a histogram's bucket.
func atMost(d time.Duration) string {
	if d < 0 {
		return "> " + span(int64(durationBound(tape.DurationBuckets-2)))
	}
	return "≤ " + span(int64(d))
}

// sizeText is a class of sizes by its bound; nothing for what has no size.
func sizeText(upTo uint64) string {
	switch upTo {
	case 0:
		return ""
	case math.MaxUint64:
		return "more than " + bytesText(classBound(tape.SizeClasses-2))
	}
	return "up to " + bytesText(upTo)
}

// between is a range; one of both if they read the same.
func between(least, most string) string {
	if least == most {
		return least
	}
	return least + " to " + most
}

// rateText is a rate with three digits and a decimal unit, as bandwidths have it.
func rateText(bytesPerSecond float64) string {
	v, units := bytesPerSecond/1e3, []string{"kB/s", "MB/s", "GB/s", "TB/s", "PB/s"}
	for v >= 999.5 && len(units) > 1 {
		v, units = v/1e3, units[1:]
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + units[0]
}

// number is a number with its thousands apart.
func number(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count is "1 tape" or "3 tapes".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(uint64(max(n, 0))) + " " + what + "s"
}

// Ranks is "rank 3", "ranks 0, 1 and 3" or "ranks 0 to 63 and 65".
func Ranks(ranks []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(ranks)))
	if len(sorted) == 0 {
		return "no rank"
	}
	var parts []string
	for i := 0; i < len(sorted); {
		to := i
		for to+1 < len(sorted) && sorted[to+1] == sorted[to]+1 {
			to++
		}
		if to-i < 3 { // a few are no range
			to = i
			parts = append(parts, strconv.Itoa(sorted[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d to %d", sorted[i], sorted[to]))
		}
		i = to + 1
	}
	word := "ranks "
	if len(sorted) == 1 {
		word = "rank "
	}
	if len(parts) == 1 {
		return word + parts[0]
	}
	return word + strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// clockTime is a time of day as events and sentences have it.
func clockTime(t time.Time) string { return t.Format("15:04:05.000000") }

// phaseText is a phase for people; empty for none.
func phaseText(p tape.Phase) string {
	if p == tape.PhaseNone {
		return ""
	}
	return semconv.PhaseName(p)
}

// who names the process that a member belongs to, by its rank in the job if that is known.
func (m *member) who() string {
	if m.proc.rank >= 0 {
		return "rank " + strconv.Itoa(m.proc.rank)
	}
	if m.proc.many {
		return fmt.Sprintf("rank %d of %s", m.info.Rank, m.name())
	}
	return m.proc.where()
}

// where is the process's machine and number: "host-a, pid 4711".
func (p *process) where() string {
	return fmt.Sprintf("%s, pid %d", clean(p.header.Host), p.header.PID)
}

// jobRank is the member's rank in the job, as far as it is known; in its communicator otherwise.
func (m *member) jobRank() int {
	if m.proc.rank >= 0 {
		return m.proc.rank
	}
	return m.info.Rank
}

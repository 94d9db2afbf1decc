package postmortem

import (
	"math"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// clock is one CLOCK_MONOTONIC: that of one boot of one machine. All tapes of that boot share it.
type clock struct {
	Clock
	procs  []*process
	wall   int64 // time of day minus this clock, by the first tape
	offset int64 // the reference's time of day minus this clock
	lo, hi int64 // bounds of this clock's zero on the reference's clock
	latest int64 // the last time on it
}

// unbounded means no bound; a sum of a few doesn't overflow.
const unbounded = math.MaxInt64 / 8

// Tolerances of clocks.
const (
	// drift is how far the clocks of two machines may drift apart in a second, in ns: quartz is good to 50 ppm, and NTP
	// corrects by more only after a fault.
	drift = 100_000
	// shift is how much a time of day may go ahead of its monotonic clock before it counts as a jump.
	shift = 100 * time.Millisecond
	// wallTolerance is how far a host's time of day may be off before it is a Problem.
	wallTolerance = 10 * time.Millisecond
	// sharedPerMember is how many of the last acts that a member shared with other ranks are compared.
	sharedPerMember = 4096
	// comparisons bounds the work for many hosts: then fewer acts are compared.
	comparisons = 64 << 20
)

// sharedKey names something that several ranks of a communicator did together.
type sharedKey struct {
	comm lifecycle.CommID
	kind sharedKind
	a, b int32 // of a message: the ranks
	seq  uint64
}

type sharedKind uint8

const (
	sharedOp sharedKind = iota
	sharedMessage
	sharedAct
)

// sharedMoment is one rank's part in a shared act: no rank ends it before all have started it. A time that bounds
// nothing is 0.
type sharedMoment struct {
	key        sharedKey // comm is filled in when they are compared
	start, end int64
}

// share stores the bounds that an operation sets on the order of events on different ranks: none if it failed or was
// only enqueued on a stream.
func (m *member) share(r *tape.OpRecord) {
	if r.Code != lifecycle.CodeOK || r.Start <= 0 || r.Start > r.Time || m.Size < 2 || m.Enqueues() {
		return
	}
	rank := int32(m.Rank)
	moment := sharedMoment{key: sharedKey{kind: sharedOp, seq: r.Seq}, start: r.Start, end: r.Time}
	switch r.Signature.Call {
	case lifecycle.CallAllReduce, lifecycle.CallAllGather, lifecycle.CallReduceScatter, lifecycle.CallAllToAll,
		lifecycle.CallBarrier, lifecycle.CallSplit:
	case lifecycle.CallBroadcast, lifecycle.CallScatter, lifecycle.CallReduce, lifecycle.CallGather:
		fromRoot := r.Signature.Call == lifecycle.CallBroadcast || r.Signature.Call == lifecycle.CallScatter
		if sends := fromRoot == (rank == r.Signature.Peer); sends {
			moment.end = 0
		} else {
			moment.start = 0
		}
	case lifecycle.CallSend:
		moment.key.kind, moment.key.a, moment.key.b, moment.end = sharedMessage, rank, r.Signature.Peer, 0
	case lifecycle.CallRecv:
		moment.key.kind, moment.key.a, moment.key.b, moment.start = sharedMessage, r.Signature.Peer, rank, 0
	default:
		return
	}
	m.shared = append(trimmed(m.shared, sharedPerMember), moment)
}

// clocks assigns the processes to their clocks, and aligns those with the first.
func (r *Report) clocks() (all []*clock) {
	byKey := make(map[string]*clock)
	for _, p := range r.procs {
		key := string(p.header.KernelBoot[:])
		switch {
		case p.header.KernelBoot != [16]byte{}:
		case p.header.BootID != "":
			key = "boot " + p.header.BootID
		default:
			key = "host " + p.header.Host
		}
		wall := p.header.Wall(0).UnixNano()
		c := byKey[key]
		if c == nil {
			c = &clock{Clock: Clock{Host: words.Line(p.header.Host), Source: ClockReference}, wall: wall}
			byKey[key] = c
			all = append(all, c)
		}
		p.clock = c
		c.procs = append(c.procs, p)
		c.Processes++
		c.latest = max(c.latest, p.last)
		if s := p.header.WallShift(); s.Abs() > shift {
			r.problem(p.path, "was written while the time of day on %s was set: by %+v", c.Host,
				s.Round(time.Millisecond))
		} else if d := time.Duration(wall - c.wall); d.Abs() > shift {
			r.problem(p.path, "has a different time of day than %s, of the same machine: %+v", c.procs[0].path,
				d.Round(time.Millisecond))
		}
	}
	bounds := compare(all)
	for i, c := range all {
		if bounds[i][i] < 0 {
			r.problem("", "the tapes of %s contradict each other: an operation ended %v before another rank began it",
				c.Host, span(-bounds[i][i]))
			bounds[i][i] = 0
		}
	}
	r.settle(all, bounds)
	return all
}

// extent is what one clock has of a shared act: its latest start and its earliest end.
type extent struct {
	clock      int
	start, end int64 // 0: none
}

// compare bounds every clock against every other by what their ranks did together: bounds[a][b] is the most that the
// zero of a can be ahead of that of b.
func compare(all []*clock) [][]int64 {
	bounds := make([][]int64, len(all))
	for i := range bounds {
		bounds[i] = slices.Repeat([]int64{unbounded}, len(all))
		bounds[i][i] = 0
	}
	acts := make(map[sharedKey][]extent)
	most := min(max(comparisons/(len(all)*len(all)), 256), sharedPerMember)
	for i, c := range all {
		for _, p := range c.procs {
			for _, m := range p.members {
				for _, s := range m.shared[max(0, len(m.shared)-most):] {
					s.key.comm = m.ID
					acts[s.key] = widen(acts[s.key], i, s)
				}
			}
		}
	}
	for _, extents := range acts {
		for _, a := range extents {
			for _, b := range extents {
				if a.start == 0 || b.end == 0 {
					continue
				}
				// An old act says less about the clocks now.
				age := max(all[b.clock].latest-b.end, 0) / int64(time.Second)
				bound := b.end - a.start + age*drift
				if a.clock == b.clock {
					bound = min(b.end-a.start, 0)
				}
				bounds[a.clock][b.clock] = min(bounds[a.clock][b.clock], bound)
			}
		}
	}
	return bounds
}

func widen(extents []extent, clock int, s sharedMoment) []extent {
	i := slices.IndexFunc(extents, func(e extent) bool { return e.clock == clock })
	if i < 0 {
		return append(extents, extent{clock, s.start, s.end})
	}
	e := &extents[i]
	e.start = max(e.start, s.start)
	if s.end != 0 && (e.end == 0 || s.end < e.end) {
		e.end = s.end
	}
	return extents
}

// settle aligns every clock with the first. The bounds are a system of difference constraints: what several of them
// imply is a shortest path, and a negative cycle is a contradiction. The middles of the intervals satisfy all bounds.
func (r *Report) settle(all []*clock, bounds [][]int64) {
	for k := range all {
		for i := range all {
			if bounds[i][k] >= unbounded {
				continue
			}
			for j := range all {
				if sum := bounds[i][k] + bounds[k][j]; bounds[k][j] < unbounded && sum < bounds[i][j] {
					bounds[i][j] = max(sum, -unbounded) // a negative cycle would overflow
				}
			}
		}
	}
	ref := all[0]
	ref.offset = ref.wall
	for i, c := range all[1:] {
		i++
		byWall := c.wall - ref.wall
		c.lo, c.hi = -bounds[0][i], bounds[i][0]
		zero := byWall
		c.Uncertainty = -1
		switch {
		case bounds[i][i] < 0 || bounds[0][0] < 0 || c.lo > c.hi:
			c.Source, c.lo, c.hi = ClockWall, -unbounded, unbounded
			r.problem("", "the operations that ranks on %s and %s share contradict each other, as when a machine was "+
				"suspended; events are ordered by the hosts' times of day", ref.Host, c.Host)
		case c.lo <= -unbounded && c.hi >= unbounded:
			c.Source = ClockWall
		case c.lo <= -unbounded || c.hi >= unbounded:
			c.Source = ClockWallWithin
			zero = min(max(byWall, c.lo), c.hi)
		default:
			c.Source = ClockShared
			zero = c.lo + (c.hi-c.lo)/2
			c.Uncertainty = time.Duration((c.hi - c.lo + 1) / 2)
		}
		c.offset = ref.wall + zero
		c.Offset = time.Duration(c.wall - c.offset)
		if c.Source != ClockWall {
			// The least by which c's time of day is ahead of ref's, or behind it.
			if off := time.Duration(byWall - min(max(byWall, c.lo), c.hi)); off > wallTolerance {
				r.problem("", "the time of day on %s is at least %v ahead of that on %s; times here are %s's", c.Host,
					words.Round(off), ref.Host, ref.Host)
			} else if off < -wallTolerance {
				r.problem("", "the time of day on %s is at least %v behind that on %s; times here are %s's", c.Host,
					words.Round(-off), ref.Host, ref.Host)
			}
		}
	}
}

// at converts a time of the process's tape to the one clock.
func (p *process) at(mono int64) time.Time {
	return time.Unix(0, mono+p.clock.offset).UTC()
}

// mono converts a time of the one clock to the process's own.
func (p *process) mono(at time.Time) int64 { return at.UnixNano() - p.clock.offset }

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// earlier is the earlier of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

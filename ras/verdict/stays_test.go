package verdict_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// visit is an operation of a device: when the device came to it, and when it was done.
type visit struct {
	comm         int
	seq          uint64
	call         lifecycle.Call
	since, until time.Duration
}

// devices is a job whose devices are seen by looks. Communicator 0 is its world, communicator 1 has the even ranks, and
// communicator 2 the second half of the ranks.
type devices struct {
	rng    *rand.Rand
	now    []time.Duration // by rank: it has done all before
	visits [][]visit
	seq    [3]uint64
	ahead  bool          // the CPUs run ahead: what is not in an operation has one queued
	unseen int           // a rank whose operations have no marks that tell when it came to them; -1: none
	began  time.Duration // rank 0 is looked at from then on
}

func newDevices(ranks int, seed uint64) *devices {
	return &devices{
		rng: rand.New(rand.NewPCG(seed, 0)), now: make([]time.Duration, ranks), visits: make([][]visit, ranks),
		unseen: -1,
	}
}

func (d *devices) computes(rank int, took time.Duration) { d.now[rank] += took }

// meet has ranks make a collective, or two ranks a message, which takes that long once all have come.
func (d *devices) meet(comm int, call lifecycle.Call, took time.Duration, ranks ...int) {
	d.seq[comm]++
	last := time.Duration(0)
	for _, r := range ranks {
		last = max(last, d.now[r])
	}
	for _, r := range ranks {
		d.visits[r] = append(d.visits[r], visit{comm, d.seq[comm], call, d.now[r], last + took})
		d.now[r] = last + took
	}
}

// members are the ranks of a communicator.
func (d *devices) members(comm int) []int {
	return slices.DeleteFunc(seq(len(d.now)), func(r int) bool {
		return comm == 1 && r%2 == 1 || comm == 2 && r < len(d.now)/2
	})
}

// slot is a rank of a communicator as a look finds it.
func (d *devices) slot(rank, comm int, now time.Duration) tape.Slot {
	s := tape.Slot{
		CommInfo: tape.CommInfo{
			ID: lifecycle.CommID{byte(comm + 1)}, Engine: "nccl 2.28.9", Name: fmt.Sprint("comm", comm), Rank: rank,
			Size: len(d.now),
		},
		Generation: uint32(comm + 1), Root: 1, State: lifecycle.StateReady, Marked: true, Wait: -1,
	}
	if comm > 0 {
		members := d.members(comm)
		s.Parent, s.Rank, s.Size = lifecycle.CommID{1}, slices.Index(members, rank), len(members)
	}
	for _, v := range d.visits[rank] {
		if v.comm != comm || !d.ahead && v.since > now {
			continue
		}
		s.Launched, s.Completed, s.Seq, s.Begun, s.Done = v.seq, v.seq, v.seq, v.seq, v.seq
		s.Op = tape.Signature{Call: v.call, Bytes: 1024, Peer: -1}
		s.OpStart, s.CallStart, s.LastEnd = int64(v.since), int64(v.since), int64(v.since)+1
		if v.until > now {
			s.Completed, s.Done, s.Phase = v.seq-1, v.seq-1, tape.PhaseStream
			s.Reached = v.since <= now && rank != d.unseen
			if v.since > now {
				s.Phase = tape.PhaseQueued
			}
			break
		}
	}
	return s
}

// judge calls f with the notes and the verdicts of every fifth second.
func (d *devices) judge(f func(now time.Duration, notes []verdict.Note, verdicts []verdict.Verdict)) {
	models, next := make([]*model.Process, len(d.now)), make([]time.Duration, len(d.now))
	for r := range models {
		models[r] = model.New(model.Limits{})
		next[r] = time.Duration(d.rng.Int64N(int64(time.Second / 4)))
	}
	next[0] += d.began
	for now := 5 * time.Second; now < 95*time.Second; now += 5 * time.Second {
		var notes []verdict.Note
		for r, p := range models {
			for ; next[r] < now; next[r] += time.Second/8 + time.Duration(d.rng.Int64N(int64(time.Second/4))) {
				var slots []tape.Slot
				for comm := range 3 {
					if slices.Contains(d.members(comm), r) {
						slots = append(slots, d.slot(r, comm, next[r]))
					}
				}
				p.Look(slots, nil)
				p.Watch(int64(next[r]))
			}
			n := verdict.Note{Member: fmt.Sprint("p", r), Rank: r, JobSize: len(models)}
			n.Fold(p, int64(next[r]))
			notes = append(notes, n)
		}
		verdicts, _ := verdict.Diagnose(notes)
		f(now, notes, verdicts)
	}
}

// accusal is a verdict's reason and rank.
func accusal(v *verdict.Verdict) string { return fmt.Sprintf("%v %d", v.Reason, v.Culprits[0].Job) }

// verdicts are those that there were at some moments, each once: reasons and ranks.
func (d *devices) verdicts() (found []string) {
	d.judge(func(_ time.Duration, _ []verdict.Note, verdicts []verdict.Verdict) {
		for i := range verdicts {
			if s := accusal(&verdicts[i]); !slices.Contains(found, s) {
				found = append(found, s)
			}
		}
	})
	return found
}

// TestStays: collectives on devices don't say which rank they wait for. The looks at them name the rank that comes last
// again and again, and no other.
func TestStays(t *testing.T) {
	const ms = time.Millisecond
	all := func(d *devices) []int { return seq(len(d.now)) }
	reduce := func(d *devices, took time.Duration) { d.meet(0, lifecycle.CallAllReduce, took, all(d)...) }
	about := func(d *devices, took time.Duration) time.Duration { // exponential, as much as that on average
		return time.Duration(d.rng.ExpFloat64() * float64(took))
	}
	late := func(rank int, by, rest, transfer time.Duration) func(*devices, int) {
		return func(d *devices, _ int) {
			for r := range d.now {
				d.computes(r, rest/2+about(d, rest/2))
			}
			d.computes(rank, by)
			reduce(d, transfer)
		}
	}
	for _, c := range []struct {
		name  string
		ranks int
		step  func(d *devices, i int)
		want  []string
	}{
		{"one is late", 4, late(2, 100*ms, 60*ms, 10*ms), []string{"straggler 2"}},
		{"one of two is late", 2, late(1, 200*ms, 60*ms, 10*ms), []string{"straggler 1"}},
		{"one of many is late in long steps", 16, late(5, 700*ms, 200*ms, 100*ms), []string{"straggler 5"}},
		{"one is late, in a job that mostly transfers", 4, late(2, 100*ms, 10*ms, 100*ms), []string{"straggler 2"}},
		{"one is a little late", 4, late(2, 10*ms, 60*ms, 10*ms), nil},
		{"one of two is a little late", 2, late(1, 10*ms, 60*ms, 30*ms), nil},
		{"all take the same time", 2, late(0, 0, 0, 40*ms), nil},
		{"all are held up by their input", 4, func(d *devices, _ int) {
			for r := range d.now {
				d.computes(r, about(d, 80*ms))
			}
			reduce(d, 5*ms)
		}, nil},
		{"of two, each is late now and then", 2, func(d *devices, _ int) {
			for r := range d.now {
				d.computes(r, about(d, 200*ms))
			}
			reduce(d, 50*ms)
		}, nil},
		{"rank 0 writes a checkpoint now and then", 4, func(d *devices, i int) {
			if i%300 == 299 {
				d.computes(0, 4*time.Second)
			}
			late(0, 0, 60*ms, 20*ms)(d, i)
		}, nil},
		{"the job changes what it does every now and then", 2, func(d *devices, i int) {
			if i/200%2 == 0 {
				late(0, 0, 90*ms, 10*ms)(d, i)
			} else {
				late(0, 0, 10*ms, 90*ms)(d, i)
			}
		}, nil},
		{"two of four are late, the others wait for either", 4, func(d *devices, i int) {
			d.computes(1, 100*ms)
			late(3, 100*ms, 20*ms, 10*ms)(d, i)
		}, nil},
		{"rank 2 comes late, as it waits for rank 0 before", 4, func(d *devices, _ int) {
			d.computes(0, 100*ms)
			d.meet(1, lifecycle.CallAllReduce, ms, 0, 2)
			d.meet(2, lifecycle.CallAllReduce, ms, 2, 3)
		}, []string{"straggler 0"}},
		{"rank 2 comes late, as it waits for a message of rank 0 before", 4, func(d *devices, _ int) {
			d.computes(0, 100*ms)
			d.meet(1, lifecycle.CallSend, ms, 0, 2)
			d.meet(2, lifecycle.CallAllReduce, ms, 2, 3)
		}, nil},
		{"the job has transferred much, and one is looked at since then", 2, func(d *devices, _ int) {
			if d.began = 30 * time.Second; d.now[0] < d.began {
				late(0, 0, 2*ms, 98*ms)(d, 0)
			} else {
				late(0, 0, 99*ms, ms)(d, 0)
			}
		}, nil},
		{"one is late, and of another nobody knows when it comes", 4, func(d *devices, _ int) {
			d.unseen = 1
			d.computes(0, 150*ms)
			d.computes(2, 50*ms)
			reduce(d, ms)
		}, nil},
		{"all come last by turns to what a broadcast begins", 4, func(d *devices, i int) {
			d.computes(i%4, 100*ms)
			d.meet(0, lifecycle.CallBroadcast, ms, 0, 1, 2, 3)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for trial := range uint64(20) {
				d := newDevices(c.ranks, trial)
				d.ahead = trial%2 == 1
				for i := 0; slices.Max(d.now) < 100*time.Second; i++ {
					c.step(d, i)
				}
				if got := d.verdicts(); !slices.Equal(got, c.want) {
					t.Errorf("trial %d: verdicts %v, want %v", trial, got, c.want)
				}
			}
		})
	}
}

// TestStaysChange: a rank that is no longer late isn't named after half of the window, and another one that has been
// late since then is named after the whole.
func TestStaysChange(t *testing.T) {
	const ms = time.Millisecond
	for trial := range uint64(20) {
		d := newDevices(4, trial)
		for d.now[0] < 100*time.Second {
			for r := range d.now {
				d.computes(r, 30*ms)
			}
			switch now := d.now[0]; {
			case now < 40*time.Second:
				d.computes(2, 70*ms)
			case now < 70*time.Second:
				d.computes(0, 70*ms)
			}
			d.meet(0, lifecycle.CallAllReduce, ms, 0, 1, 2, 3)
		}
		last := map[string]verdict.Verdict{}
		d.judge(func(now time.Duration, notes []verdict.Note, verdicts []verdict.Verdict) {
			var named []string
			for i := range verdicts {
				named = append(named, accusal(&verdicts[i]))
				last[named[i]] = verdicts[i]
			}
			recovered := func(name string) bool { v := last[name]; return v.Recovered(notes) }
			second := now / time.Second
			switch {
			case second > 10 && second <= 40 && !slices.Equal(named, []string{"straggler 2"}),
				second >= 50 && slices.Contains(named, "straggler 2"),
				second >= 60 && second <= 70 && !slices.Equal(named, []string{"straggler 0"}),
				second >= 80 && len(named) > 0:
				t.Errorf("trial %d: at %v, %v are named", trial, now, named)
			case second == 40 && recovered("straggler 2"), second == 50 && !recovered("straggler 2"),
				second == 70 && recovered("straggler 0"), second == 80 && !recovered("straggler 0"):
				t.Errorf("trial %d: at %v, it is wrong who has recovered", trial, now)
			}
		})
	}
}

// TestStaysOfStaleNotes: the times of devices count even if a process's operations of that time are lost, but not if
// the process is dead.
func TestStaysOfStaleNotes(t *testing.T) {
	d := newDevices(3, 1)
	for d.now[0] < 100*time.Second {
		d.computes(2, 100*time.Millisecond)
		d.meet(0, lifecycle.CallAllReduce, time.Millisecond, 0, 1, 2)
	}
	d.judge(func(now time.Duration, notes []verdict.Note, _ []verdict.Verdict) {
		if now != 40*time.Second {
			return
		}
		for i := range notes {
			notes[i].Stale = true
		}
		if verdicts, _ := verdict.Diagnose(notes); len(verdicts) != 1 || accusal(&verdicts[0]) != "straggler 2" {
			t.Errorf("of stale notes, the verdicts are %v", verdicts)
		}
		notes[1].Fate = verdict.Dead
		verdicts, _ := verdict.Diagnose(notes)
		if slices.ContainsFunc(verdicts, func(v verdict.Verdict) bool { return v.Reason == verdict.Straggler }) {
			t.Errorf("when a rank is dead, the verdicts are %v", verdicts)
		}
	})
}

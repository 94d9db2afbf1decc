package ncclras

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// start is when the first status came.
var start = time.Unix(1_700_000_000, 0)

// hosts has names for two machines.
func hosts(a netip.Addr) string {
	return map[netip.Addr]string{addr("10.0.0.1"): "node1", addr("10.0.0.2"): "node2"}[a]
}

// world is a communicator of four ranks, two on each machine, which have launched these numbers of operations.
func world(launched ...uint64) Comm {
	c := Comm{Hash: 0xabcd, Size: 4}
	for r, n := range launched {
		c.Ranks = append(c.Ranks, Rank{
			Rank: r, Process: Process{addr(fmt.Sprintf("10.0.0.%d", 1+r/2)), 40 + r}, GPU: r % 2,
			Launched: map[string]uint64{"AllReduce": n - 1, "Broadcast": 1},
		})
	}
	return c
}

// missing changes a rank to one that doesn't answer.
func missing(c Comm, rank int, is Condition) Comm {
	c.Ranks = slices.Clone(c.Ranks)
	c.Ranks[rank].Condition, c.Ranks[rank].Launched = is, nil
	return c
}

// resting are notes whose ranks wait for nothing.
func resting(notes []verdict.Note) []verdict.Note {
	for i := range notes {
		s := &notes[i].Slots[0]
		s.InFlight, s.Stalled = 0, false
	}
	return notes
}

// own are the notes of node1's processes, from their tapes: they wait in operation seq of the world.
func own(seq uint64, comms ...lifecycle.CommID) (notes []verdict.Note) {
	for r := range 2 {
		n := verdict.Note{Member: fmt.Sprint("node1-", 40+r), Host: "node1", PID: 40 + r, Rank: r, JobSize: 4}
		for _, id := range comms {
			n.Slots = append(n.Slots, verdict.Slot{
				Comm: id, Name: "world", Rank: r, Size: 4, Job: r, State: lifecycle.StateReady, Wait: -1,
				InFlight: 1, Seq: seq, Begun: seq, Done: seq - 1, Op: tape.Signature{Call: lifecycle.CallAllReduce},
				Age: 20 * time.Second, Stalled: true,
			})
		}
		notes = append(notes, n)
	}
	return notes
}

// said are the notes of a view, a line each.
func said(notes []verdict.Note) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "%s host %s pid %d", n.Member, n.Host, n.PID)
		if n.Rank >= 0 {
			fmt.Fprintf(&b, ", job %d", n.Rank)
		}
		fmt.Fprintf(&b, ": %v", n.Fate)
		if n.Stale {
			b.WriteString(", stale")
		}
		if n.FateAge > 0 {
			fmt.Fprintf(&b, " for %v: %s", n.FateAge, n.Cause)
		}
		for _, s := range n.Slots {
			fmt.Fprintf(&b, "; rank %d of %d (job %d) of %q begun %d done %d", s.Rank, s.Size, s.Job, s.Name, s.Begun,
				s.Done)
			if s.Left != nil {
				fmt.Fprintf(&b, " left by %v", s.Left.Act)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestView(t *testing.T) {
	id, other := lifecycle.CommID{1}, lifecycle.CommID{2}
	learn := func(statuses ...Status) *View {
		v := &View{}
		for i := range statuses {
			v.Learn(&statuses[i], start.Add(time.Duration(i)*5*time.Second))
		}
		return v
	}
	of := func(comms ...Comm) Status { return Status{NCCL: "2.31.2", Comms: comms} }
	silent := missing(world(7, 7, 7, 7), 3, Unresponsive)
	dead := missing(world(7, 7, 7, 7), 3, Dead)
	gone := world(7, 7, 7, 7)
	gone.Ranks[2].Condition, gone.Ranks[3].Condition = Aborting, Finalizing
	unseen := "node2-43 host node2 pid 43, job 3: alive, stale\n"
	through := `node2-43 host node2 pid 43, job 3: alive, stale; rank 3 of 4 (job 3) of "world" begun 7 done 7` + "\n"
	idle := `node2-42 host node2 pid 42, job 2: alive, stale; rank 2 of 4 (job 2) of "world" begun 7 done 7` + "\n"
	for name, test := range map[string]struct {
		view *View
		own  []verdict.Note
		want string
	}{
		"all have launched it": {
			view: learn(of(world(7, 7, 7, 7))), own: own(7, id),
			want: idle + through,
		},
		"one has not": {
			view: learn(of(world(7, 7, 7, 6))), own: own(7, id),
			want: idle + unseen,
		},
		"counts that the tapes don't bear out": {
			view: learn(of(world(7, 6, 7, 7))), own: own(7, id),
			want: "node2-42 host node2 pid 42, job 2: alive, stale\n" + unseen,
		},
		"no answer, once": {
			view: learn(of(silent)), own: own(7, id),
			want: idle + unseen,
		},
		"no answer, twice": {
			view: learn(of(silent), of(silent)),
			own:  own(7, id),
			want: idle + `node2-43 host node2 pid 43, job 3: unreachable, stale for 20s: it doesn't answer NCCL; ` +
				`rank 3 of 4 (job 3) of "world" begun 0 done 0` + "\n",
		},
		"no answer, and nobody waits for it": {
			view: learn(of(silent), of(silent)), own: resting(own(7, id)), want: idle + unseen,
		},
		"considered dead, and nobody waits for it": {
			view: learn(of(dead), of(dead)), own: resting(own(7, id)), want: idle + unseen,
		},
		"it answers again": {
			view: learn(of(dead), of(world(7, 7, 7, 7))), own: own(7, id),
			want: idle + through,
		},
		"considered dead": {
			view: learn(of(dead)), own: own(7, id),
			want: idle + `node2-43 host node2 pid 43, job 3: unreachable, stale for 20s: NCCL considers it dead: ` +
				`it gave no answer for a minute; rank 3 of 4 (job 3) of "world" begun 0 done 0` + "\n",
		},
		"ended": {
			view: learn(of(gone)), own: own(7, id),
			want: `
node2-42 host node2 pid 42, job 2: alive, stale; rank 2 of 4 (job 2) of "world" begun 7 done 7 left by abort
node2-43 host node2 pid 43, job 3: alive, stale; rank 3 of 4 (job 3) of "world" begun 7 done 7 left by destroy
`,
		},
		"two communicators that look the same": {
			view: learn(of(world(7, 7, 7, 7))), own: own(7, id, other),
			want: `
node2-42 host node2 pid 42: alive, stale
node2-43 host node2 pid 43: alive, stale
`,
		},
		"another job": {
			view: learn(of(world(7, 7, 7, 7))), own: []verdict.Note{{Member: "node1-99", Host: "node1", PID: 99}},
		},
		"a tape of a host with another name": {
			view: learn(of(silent), of(silent)), own: append(own(7, id), verdict.Note{
				Member: "node2a-43", Host: "node2a", PID: 43, Rank: 3,
				Slots: []verdict.Slot{{Comm: id, Rank: 3, Size: 4, Job: 3, Begun: 7, Done: 7}},
			}),
			want: idle,
		},
		"damage": {
			view: learn(of(world(7, 7, 7, 7)), Status{Damage: []string{"a rank 1852139639"}, Comms: []Comm{dead}}),
			own:  own(7, id),
			want: idle + through,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := said(test.view.Notes(test.own, hosts, start.Add(20*time.Second)))
			if want := strings.TrimPrefix(test.want, "\n"); got != want {
				t.Errorf("notes:\n%swant:\n%s", got, want)
			}
		})
	}
}

// TestViewOpen: whether another status may add something.
func TestViewOpen(t *testing.T) {
	p := Process{addr("10.0.0.2"), 43}
	silent, dead := missing(world(7, 7, 7, 7), 3, Unresponsive), missing(world(7, 7, 7, 7), 3, Dead)
	v := &View{}
	for i, step := range []struct {
		event  string
		status Comm
		open   bool
	}{
		{status: world(7, 7, 7, 7)},
		{event: PeerUnresponsive, open: true},
		{status: silent, open: true}, // it may answer again
		{status: world(7, 7, 7, 7)},
		{event: PeerDead, open: true}, // which ranks are its?
		{status: dead},
	} {
		at := start.Add(time.Duration(i) * time.Second)
		if step.event != "" {
			v.Hear(Event{Name: step.event, Process: p}, at)
		} else {
			v.Learn(&Status{Comms: []Comm{step.status}}, at)
		}
		if v.Open() != step.open {
			t.Errorf("after step %d it is open: %v", i, v.Open())
		}
	}
}

// What becomes of a process by events.
func TestViewHears(t *testing.T) {
	id := lifecycle.CommID{1}
	p := Process{addr("10.0.0.2"), 43}
	for name, test := range map[string]struct {
		names []string
		fate  verdict.Fate
	}{
		"new":                     {[]string{PeerNew}, verdict.Alive},
		"silent":                  {[]string{PeerUnresponsive}, verdict.Unreachable},
		"recovered":               {[]string{PeerUnresponsive, PeerRecovered}, verdict.Alive},
		"dead":                    {[]string{PeerUnresponsive, "PEER_DISCONNECTED", PeerDead}, verdict.Unreachable},
		"connections come and go": {[]string{"PEER_CONNECTING", "PEER_DISCONNECTED", "PEER_RETRY"}, verdict.Alive},
	} {
		t.Run(name, func(t *testing.T) {
			v := &View{}
			v.Hear(Event{Name: Watching}, start)
			v.Hear(Event{Name: PeerNew, Process: Process{addr("10.0.0.1"), 40}}, start)
			for _, ev := range test.names {
				v.Hear(Event{Name: ev, Process: p}, start)
			}
			if notes := v.Notes(own(7, id), hosts, start); name != "dead" && notes[0].Fate != verdict.Alive {
				t.Errorf("at once: %v", said(notes))
			}
			notes := v.Notes(own(7, id), hosts, start.Add(doubtTime))
			if len(notes) != 1 || notes[0].Fate != test.fate {
				t.Errorf("notes: %v; want one that is %v", said(notes), test.fate)
			}
		})
	}
}

// TestJudged: verdict.Diagnose, with the notes of one node's tapes and what NCCL knows of the other node.
func TestJudged(t *testing.T) {
	id := lifecycle.CommID{1}
	for name, test := range map[string]struct {
		statuses []Comm
		want     string
	}{
		"a process that is gone": {
			statuses: []Comm{missing(world(7, 7, 7, 7), 3, Dead)},
			want: "rank_unreachable certain: rank 3 (node2, pid 43) stopped answering 20s ago: NCCL considers it " +
				"dead: it gave no answer for a minute; ranks 0 and 1 wait",
		},
		"a process that doesn't answer twice": {
			statuses: []Comm{
				missing(world(7, 7, 7, 7), 3, Unresponsive), missing(world(7, 7, 7, 7), 3, Unresponsive),
			},
			want: "rank_unreachable certain: rank 3 (node2, pid 43) stopped answering 20s ago: it doesn't answer " +
				"NCCL; ranks 0 and 1 wait",
		},
		// It may itself wait for a message: no rank is blamed.
		"a rank that has not launched it": {
			statuses: []Comm{world(7, 7, 7, 6)},
			want: "unknown possible: all_reduce 7 on \"world\" does not complete, and the cause is not known: " +
				"the tape of rank 3 cannot be read",
		},
		// As on tapes alone: a kernel may take its time.
		"all have launched it": {statuses: []Comm{world(7, 7, 7, 7)}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &View{}
			for i, c := range test.statuses {
				v.Learn(&Status{Comms: []Comm{c}}, start.Add(time.Duration(i)*5*time.Second))
			}
			mine := own(7, id)
			verdicts, _ := verdict.Diagnose(append(mine, v.Notes(mine, hosts, start.Add(20*time.Second))...))
			var got []string
			for _, j := range verdicts {
				got = append(got, fmt.Sprintf("%v %v: %v", j.Reason, j.Confidence, j.Text))
			}
			if strings.Join(got, "\n") != test.want {
				t.Errorf("verdicts:\n%s\nwant:\n%s", strings.Join(got, "\n"), test.want)
			}
		})
	}
}

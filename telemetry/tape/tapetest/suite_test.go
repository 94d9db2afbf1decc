package tapetest_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// player lets the writer under test play a script onto a new tape of 4 slots and rings of 256 records, and returns the
// tape's path. A script that ends in crash must be played by a process that is gone when player returns.
type player func(t *testing.T, script io.Reader) (path string)

// runSuite holds any writer of tapes, in any language, against the format: the writer plays a script, and what lies on
// the file afterwards is compared with it.
//
// A script is text, a line a step, so that a writer in C reads it with scanf:
//
//	comm N ID PARENT NAME RANK SIZE NODES ENGINE     communicator N (a small number) begins; ids are 32 hexadecimal
//	                                                 digits
//	describe N NAME NODES ENGINE                     more became known about it
//	from N PARENT                                    the same rank made it from communicator number PARENT
//	state N STATE                                    its slot shows the state (a number, as all that follow)
//	life N ACT CALL STAGE SEQ PHASE CODE STATE PEER TEXT
//	shared N …                                       as life; its communicator was called from several goroutines or
//	                                                 threads
//	start N CALL DTYPE REDUCTION PEER BYTES ALGORITHM
//	phase N PHASE
//	wait N RANK
//	end N SEQ CODE
//	close N                                          its slot is free again
//	crash                                            the script ends, and the writer doesn't close the tape
//
// TEXT is the rest of the line. A script that doesn't end in crash ends with the tape closed.
func runSuite(t *testing.T, play player) {
	t.Run("records", func(t *testing.T) { testRecords(t, play) })
	t.Run("slots", func(t *testing.T) { testSlots(t, play) })
	t.Run("table full", func(t *testing.T) { testTableFull(t, play) })
	t.Run("overwritten", func(t *testing.T) { testOverwritten(t, play) })
	t.Run("crash", func(t *testing.T) { testCrash(t, play) })
	t.Run("follow", func(t *testing.T) { testFollow(t, play) })
}

const (
	idA  = "0102030405060708090a0b0c0d0e0f10"
	idB  = "ff000000000000000000000000000001"
	none = "00000000000000000000000000000000"
)

func commID(t *testing.T, text string) lifecycle.CommID {
	t.Helper()
	id, err := lifecycle.ParseCommID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func record(t *testing.T, play player, lines ...string) *tape.Reader {
	t.Helper()
	r, err := tape.Open(play(t, strings.NewReader(strings.Join(lines, "\n")+"\n")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func events(t *testing.T, r *tape.Reader) []tape.Event {
	t.Helper()
	var events []tape.Event
	for ev, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, ev)
	}
	return events
}

func compare(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// withoutTimes checks that the times of a communicator's events make sense and takes them away.
func withoutTimes(t *testing.T, events []tape.Event) []tape.Event {
	t.Helper()
	var last int64
	started := make(map[uint64]int64)
	for i := range events {
		ev := &events[i]
		if ev.IsLife {
			if ev.Life.Time <= 0 || ev.Life.Time < last {
				t.Errorf("event %d: time %d after %d", i, ev.Life.Time, last)
			}
			last = ev.Life.Time
			ev.Life.Time = 0
			continue
		}
		if ev.Op.Time <= 0 || ev.Op.Time < last {
			t.Errorf("event %d: time %d after %d", i, ev.Op.Time, last)
		}
		if ev.Op.Stage == tape.StageStart {
			started[ev.Op.Seq] = ev.Op.Time
		}
		if ev.Op.Start != started[ev.Op.Seq] {
			t.Errorf("event %d: operation %d started at %d, not %d", i, ev.Op.Seq, started[ev.Op.Seq], ev.Op.Start)
		}
		last = ev.Op.Time
		ev.Op.Time, ev.Op.Start = 0, 0
	}
	return events
}

func testRecords(t *testing.T, play player) {
	long := strings.Repeat("0123456789abcdef", 50) // in 15 continuation records
	r := record(t, play,
		"comm 1 "+idA+" "+idB+" world 3 8 2 host",
		"life 1 1 1 1 0 0 0 1 -1 beginning",
		"shared 1 2 5 5 3 3 104 2 4 "+long,
		"start 1 16 7 4 -1 1099511627776 2",
		"phase 1 6",
		"wait 1 5",
		"wait 1 5",
		"wait 1 -1",
		"end 1 1 301",
	)
	info := tape.CommInfo{
		ID: commID(t, idA), Parent: commID(t, idB), Name: "world", Rank: 3, Size: 8, Nodes: 2,
		Engine: "host",
	}
	life := func(l tape.LifeRecord) tape.Event {
		return tape.Event{Comm: info, Generation: 1, Root: 1, IsLife: true, Life: l}
	}
	op := func(stage tape.Stage, phase tape.Phase, wait int32, code lifecycle.Code) tape.Event {
		return tape.Event{Comm: info, Generation: 1, Root: 1, Op: tape.OpRecord{
			Stage: stage, Seq: 1, Algorithm: 2, Phase: phase, Wait: wait, Code: code,
			Signature: tape.Signature{Call: 16, DataType: 7, Reduction: 4, Peer: -1, Bytes: 1 << 40},
		}}
	}
	want := []tape.Event{
		life(tape.LifeRecord{
			Act: tape.ActInit, Call: 1, Stage: tape.StageStart, State: 1, Peer: -1, Text: "beginning",
		}),
		life(tape.LifeRecord{
			Act: tape.ActSplit, Call: 5, Stage: tape.StageMisuse, Seq: 3, Phase: tape.PhaseConnect,
			Code: lifecycle.CodeDestroyed, State: 2, Peer: 4,
			Text: long, Shared: true,
		}),
		op(tape.StageStart, tape.PhaseNone, -1, 0),
		op(tape.StagePhase, tape.PhaseTransfer, -1, 0),
		op(tape.StageWait, tape.PhaseTransfer, 5, 0),
		op(tape.StageWait, tape.PhaseTransfer, -1, 0),
		op(tape.StageEnd, tape.PhaseTransfer, -1, lifecycle.CodeTimeout),
	}
	got := withoutTimes(t, events(t, r))
	for i := range min(len(got), len(want)) {
		compare(t, fmt.Sprintf("event %d", i), got[i], want[i])
	}
	compare(t, "the number of events", len(got), len(want))
	if !r.Header().Closed {
		t.Error("the tape is not closed")
	}
	if m := r.Missed(); m != (tape.Missed{}) {
		t.Errorf("missed %+v", m)
	}
}

func testSlots(t *testing.T, play player) {
	r := record(t, play,
		"comm 1 "+idA+" "+none+" first 0 2 0 none",
		"comm 2 "+idB+" "+idA+" second 1 2 0 none",
		"describe 2 renamed 1 host",
		"from 2 1",
		"state 2 2",
		"start 2 16 7 0 -1 8 1",
		"end 2 1 0",
		"start 2 24 1 0 0 9 3",
		"phase 2 5",
		"wait 2 0",
		"start 2 25 2 0 0 10 3",
		"close 1",
	)
	slots, err := r.AppendSlots(nil)
	if err != nil || len(slots) != 1 {
		t.Fatalf("%d slots, want one: %v", len(slots), err)
	}
	got := slots[0]
	if got.LastEnd <= 0 || got.OpStart < got.LastEnd || got.WaitSince < got.OpStart {
		t.Errorf("times: the last one ended at %d, this one started at %d and waits since %d", got.LastEnd, got.OpStart,
			got.WaitSince)
	}
	got.LastEnd, got.OpStart, got.WaitSince = 0, 0, 0
	want := tape.Slot{
		CommInfo: tape.CommInfo{
			ID: commID(t, idB), Parent: commID(t, idA), Name: "renamed", Rank: 1, Size: 2, Nodes: 1,
			Engine: "host",
		},
		Index: 1, Generation: 2, Root: 1, State: 2, Launched: 3, Completed: 1, Seq: 2, Begun: 1, Done: 1,
		Op:        tape.Signature{Call: 24, DataType: 1, Peer: 0, Bytes: 9},
		Algorithm: 3, Phase: tape.PhaseAgree, Wait: 0,
	}
	compare(t, "the slot", got, want)
	for _, ev := range events(t, r) {
		compare(t, "the root", ev.Root, uint32(1))
	}
}

func testTableFull(t *testing.T, play player) {
	var lines []string
	for n := 1; n <= 6; n++ {
		lines = append(lines, fmt.Sprintf("comm %d %032x %s c%d 0 1 1 host", n, n, none, n),
			fmt.Sprintf("start %d 16 7 0 -1 8 1", n))
		if n <= 4 { // what no slot shows is in the rings at once
			lines = append(lines, fmt.Sprintf("end %d 1 0", n))
		}
	}
	lines = append(lines, "close 2", "comm 7 "+idA+" "+none+" c7 0 1 1 host", "state 2 9", "start 2 16 7 0 -1 8 1")
	r := record(t, play, lines...)
	live := make(map[string]uint32)
	for _, s := range r.Slots() {
		live[s.Name] = s.Generation
	}
	compare(t, "live communicators and their generations", live, map[string]uint32{"c1": 1, "c3": 3, "c4": 4, "c7": 7})
	if n := r.Header().Overflow; n != 2 {
		t.Errorf("the header counts %d that found no slot, of 2", n)
	}
	seen := make(map[string]int)
	for _, ev := range events(t, r) {
		seen[ev.Comm.Name] = ev.Slot
	}
	compare(t, "the rings' communicators and their slots", seen,
		map[string]int{"c1": 0, "c2": 1, "c3": 2, "c4": 3, "c5": -1, "c6": -1})
}

func testOverwritten(t *testing.T, play player) {
	const n = 1000
	lines := []string{"comm 1 " + idA + " " + none + " world 0 1 1 host"}
	for seq := 1; seq <= n; seq++ {
		lines = append(lines, "start 1 16 7 0 -1 8 1", fmt.Sprintf("end 1 %d 0", seq),
			fmt.Sprintf("life 1 2 5 1 %d 0 0 2 -1 act", seq))
	}
	r := record(t, play, lines...)
	var ops, lives, last uint64
	for _, ev := range events(t, r) {
		if ev.Comm.Name != "world" {
			t.Fatalf("an event of %+v", ev.Comm)
		}
		if !ev.IsLife {
			ops++
			continue
		}
		lives++
		if last != 0 && ev.Life.Seq != last+1 {
			t.Errorf("act %d follows %d", ev.Life.Seq, last)
		}
		last = ev.Life.Seq
	}
	if m := r.Missed(); ops < 256-32 || ops == n || m.Op != n-ops {
		t.Errorf("%d operations of %d, missed %d", ops, n, m.Op)
	}
	if lives != 128 || last != n {
		t.Errorf("%d acts of 128, the last is %d", lives, last)
	}
}

func testCrash(t *testing.T, play player) {
	r := record(t, play, "comm 1 "+idA+" "+none+" world 0 4 1 host", "start 1 16 7 0 -1 8 1", "wait 1 3", "crash")
	if r.Header().Closed || r.Liveness() != process.Dead {
		t.Errorf("closed is %v, the process is %v", r.Header().Closed, r.Liveness())
	}
	if slots := r.Slots(); len(slots) != 1 || slots[0].Launched != 1 || slots[0].Completed != 0 || slots[0].Wait != 3 {
		t.Errorf("its last moment: %+v", slots)
	}
	if n := len(events(t, r)); n != 2 {
		t.Errorf("%d events of 2", n)
	}
	f, err := tape.Follow(t.Context(), r.Path(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for err == nil {
		_, err = f.Next(t.Context())
	}
	if !errors.Is(err, tape.ErrDied) {
		t.Errorf("a follower says %v", err)
	}
}

func testFollow(t *testing.T, play player) {
	r := record(t, play, "comm 1 "+idA+" "+none+" world 0 4 1 host", "start 1 16 7 0 -1 8 1", "phase 1 5",
		"life 1 8 11 4 0 0 0 7 -1 end", "end 1 1 0")
	f, err := tape.Follow(t.Context(), r.Path(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var order []string
	for {
		ev, err := f.Next(t.Context())
		if errors.Is(err, tape.ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev.IsLife {
			order = append(order, "act "+ev.Life.Text)
		} else {
			order = append(order, "op "+ev.Op.Stage.String())
		}
	}
	compare(t, "the order of both rings", order, []string{"op start", "op phase", "act end", "op end"})
	dir := filepath.Dir(filepath.Dir(r.Path()))
	if removed, err := tape.SweepJobs(dir, 0); err != nil || len(removed) != 1 {
		t.Errorf("SweepJobs removed %v, %v", removed, err)
	}
}

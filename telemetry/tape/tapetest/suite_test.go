package tapetest_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// player has the writer under test, in a process of its own, play a script onto a new tape, and returns the tape's path
// when the process has ended. The tape has tapeSlots, lifeRecords and opRecords; no operation is slow on it.
type player func(t *testing.T, script io.Reader) (path string)

// The sizes of the tape that a script is played onto.
const (
	tapeSlots   = 4
	lifeRecords = 256
	opRecords   = 256
)

// testWriter tests a writer of tapes, in any language: it plays scripts, and its tapes are compared with the scripts
// and with those of Go's writer.
//
// A script is text with a step on each line, so that a writer in C reads it with scanf:
//
//	comm N ID PARENT NAME RANK SIZE NODES ENGINE FROM
//	                            communicator N (a small number) begins, which the same rank made from number FROM (0:
//	                            none); ids are 32 hexadecimal digits
//	describe N NAME NODES ENGINE
//	                            its description changes
//	state N STATE               its slot shows the state (a number, as all that follow)
//	site FUNC FILE LINE THREAD TIME
//	                            the next act's site; FUNC or FILE - is empty
//	first …                     as site: where the first one was
//	life N ACT CALL STAGE SEQ PHASE CODE STATE PEER START OPS SHARED CHILD TEXT
//	                            SHARED is 0 or 1, CHILD an id
//	start N NUMBER CALL DTYPE REDUCTION PEER BYTES ALGORITHM
//	phase N PHASE
//	wait N RANK
//	end N LAUNCHED CODE
//	close N                     its slot is free again
//	both N M TIMES              two threads, one for each communicator, start and end that many all-reduces of 8 bytes
//	killed N M TIMES            two threads do that without end; after TIMES operations of one of them, a third thread
//	                            sends the process SIGKILL
//	crash                       the process ends, and doesn't close the tape
//
// TEXT is the rest of the line. A script that doesn't end in crash or killed ends with the tape closed.
func testWriter(t *testing.T, play player) {
	t.Run("records", func(t *testing.T) { testRecords(t, play) })
	t.Run("tails", func(t *testing.T) { testTails(t, play) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, play) })
	t.Run("many in flight", func(t *testing.T) { testManyInFlight(t, play) })
	t.Run("slots", func(t *testing.T) { testSlots(t, play) })
	t.Run("table full", func(t *testing.T) { testTableFull(t, play) })
	t.Run("overwritten", func(t *testing.T) { testOverwritten(t, play) })
	t.Run("tallies", func(t *testing.T) { testTallies(t, play) })
	t.Run("two threads", func(t *testing.T) { testTwoThreads(t, play) })
	t.Run("crash", func(t *testing.T) { testCrash(t, play) })
	t.Run("killed", func(t *testing.T) { testKilled(t, play) })
	t.Run("follow", func(t *testing.T) { testFollow(t, play) })
	t.Run("as Go's", func(t *testing.T) { testAsGo(t, play) })
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

// followed returns the events that a follower gets from a tape, in order, and the error that ends them.
func followed(t *testing.T, path string) (events []tape.Event, end error) {
	t.Helper()
	f, err := tape.Follow(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for {
		ev, err := f.Next(t.Context())
		if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
}

func compare(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// withoutTimes checks that the times of a communicator's events make sense and removes them.
func withoutTimes(t *testing.T, events []tape.Event) []tape.Event {
	t.Helper()
	var last int64
	started := make(map[uint64]int64)
	for i := range events {
		ev := &events[i]
		if at := ev.Time(); at <= 0 || at < last {
			t.Errorf("event %d: time %d after %d", i, at, last)
		}
		last = ev.Time()
		if ev.IsLife {
			ev.Life.Time = 0
			continue
		}
		if ev.Op.Stage == tape.StageStart {
			started[ev.Op.Seq] = ev.Op.Time
		}
		if ev.Op.Start != started[ev.Op.Seq] {
			t.Errorf("event %d: operation %d started at %d, not %d", i, ev.Op.Seq, started[ev.Op.Seq], ev.Op.Start)
		}
		ev.Op.Time, ev.Op.Start = 0, 0
	}
	return events
}

// testManyInFlight: the slot shows the oldest operation, however many follow it.
func testManyInFlight(t *testing.T, play player) {
	script := []string{"comm 1 " + idA + " " + none + " world 0 2 1 host 0"}
	for n := range 100 {
		script = append(script, fmt.Sprintf("start 1 %d 16 7 0 -1 8 1", 5+n))
	}
	slots := record(t, play, append(script, "crash")...).Slots()
	if len(slots) != 1 || slots[0].Launched != 100 || slots[0].Seq != 5 || slots[0].Op.Bytes != 8 {
		t.Errorf("the slots are %+v, want one that shows operation 5", slots)
	}
}

func testRecords(t *testing.T, play player) {
	long := strings.Repeat("0123456789abcdef", 50) // in 15 continuation records
	r := record(t, play,
		"comm 1 "+idA+" "+idB+" world 3 8 2 host 0",
		"life 1 1 1 1 0 0 0 1 -1 0 0 0 "+none+" beginning",
		"life 1 2 5 5 3 3 104 2 4 77 0 1 "+none+" "+long,
		"start 1 0 16 7 4 -1 1099511627776 2",
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
			Start: 77, Text: long, Shared: true,
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

// testTails plays an act with all fields of a tail, and one with texts longer than are kept.
func testTails(t *testing.T, play player) {
	long := strings.Repeat("ä", 1000) // of two bytes each
	r := record(t, play,
		"comm 1 "+idA+" "+none+" "+strings.Repeat("ä", 40)+" 0 2 1 nccl-2.28.9-and-more 0",
		"site ddp.so+0x1f2c train.py 12 345 1700000000000000001",
		"first main - 0 0 0",
		"life 1 2 5 5 3 3 104 2 4 77 6 1 "+idB+" twice",
		"site "+long+" "+long+" 1 0 0",
		"life 1 0 16 5 0 0 104 5 -1 0 0 0 "+none+" "+long,
		"close 1",
		"life 1 7 10 5 0 0 104 6 -1 0 0 0 "+none+" after its end",
	)
	site := lifecycle.Site{Func: "ddp.so+0x1f2c", File: "train.py", Line: 12, Goroutine: 345}
	cut := strings.Repeat("ä", 80)
	want := []tape.LifeRecord{
		{
			Act: tape.ActSplit, Call: 5, Stage: tape.StageMisuse, Seq: 3, Start: 77, Phase: tape.PhaseConnect,
			Code: lifecycle.CodeDestroyed, State: 2, Peer: 4, Text: "twice", Site: site,
			First: lifecycle.Site{Func: "main"}, Child: commID(t, idB), Ops: 6, Shared: true,
		},
		{
			Call: 16, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed, State: 5, Peer: -1,
			Text: strings.Repeat("ä", 512), Site: lifecycle.Site{Func: cut, File: cut, Line: 1},
		},
		{
			Act: tape.ActDestroy, Call: 10, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed, State: 6, Peer: -1,
			Text: "after its end",
		},
	}
	got := events(t, r)
	for i := range min(len(got), len(want)) {
		life := got[i].Life
		if i == 0 && life.Site.Time.UnixNano() != 1700000000000000001 {
			t.Errorf("the site's time is %v", life.Site.Time)
		}
		life.Time, life.Site.Time = 0, time.Time{}
		compare(t, fmt.Sprintf("act %d", i), life, want[i])
		compare(t, "the name", got[i].Comm.Name, strings.Repeat("ä", 27))
		compare(t, "the engine", got[i].Comm.Engine, "nccl-2.28.9-and")
	}
	compare(t, "the number of acts", len(got), len(want))
}

// testRefusals plays a loop of refused calls, with other refused calls in between. The rings are shorter than the loop.
func testRefusals(t *testing.T, play player) {
	script := []string{"comm 1 " + idA + " " + none + " w 0 2 1 nccl 0"}
	refused := func(call int, site string) {
		script = append(script, "site "+site+" - 0 0 0",
			fmt.Sprintf("life 1 0 %d 5 0 0 104 6 -1 0 0 0 %s refused", call, none))
	}
	for i := range 1000 {
		if i == 10 {
			refused(17, "main")
			refused(16, "other")
		}
		refused(16, "main")
	}
	r := record(t, play, script...)
	var got []string
	all := map[string]uint64{}
	for _, ev := range events(t, r) {
		kind := fmt.Sprintf("%d in %s", ev.Life.Call, ev.Life.Site.Func)
		times, more := ev.Life.Refused()
		if all[kind] += more; all[kind] != times {
			t.Errorf("%s: %d by the records, the last one says %d", kind, all[kind], times)
		}
		got = append(got, fmt.Sprintf("%s: %d", kind, times))
	}
	compare(t, "what is recorded", got, []string{
		"16 in main: 1", "16 in main: 2", "16 in main: 4", "16 in main: 8", "17 in main: 1", "16 in other: 1",
		"16 in main: 16", "16 in main: 32", "16 in main: 64", "16 in main: 128", "16 in main: 256", "16 in main: 512",
	})
	if m := r.Missed(); m != (tape.Missed{}) {
		t.Errorf("missed %+v", m)
	}

	script = script[:1]
	for i := range 10000 { // more kinds than are counted, each of which comes once
		refused(16, fmt.Sprintf("f%d", i))
	}
	if n := len(events(t, record(t, play, script...))); n < 16 || n > 64 {
		t.Errorf("of many kinds of refused calls there are %d records", n)
	}
}

func testSlots(t *testing.T, play player) {
	r := record(t, play,
		"comm 1 "+idA+" "+none+" first 0 2 0 none 0",
		"comm 2 "+idB+" "+idA+" second 1 2 0 none 1",
		"describe 2 renamed 1 host",
		"state 2 2",
		"start 2 0 16 7 0 -1 8 1",
		"end 2 1 0",
		"start 2 0 24 1 0 0 9 3",
		"phase 2 5",
		"wait 2 0",
		"start 2 0 25 2 0 0 10 3",
		"close 1",
		"comm 3 "+idA+" "+none+" third 0 2 0 host 0",
		"start 3 0 16 7 0 -1 8 1",
		"start 3 0 17 7 0 0 16 1",
		"end 3 2 0",
		"end 3 1 0",
	)
	slots, err := r.AppendSlots(nil)
	if err != nil || len(slots) != 2 {
		t.Fatalf("%d slots, want two: %v", len(slots), err)
	}
	idle, got := slots[0], slots[1]
	if idle.Launched != 2 || idle.Completed != 2 || idle.Seq != 2 || idle.Op.Bytes != 16 || idle.Done != 2 {
		t.Errorf("when the older of two ends last, its slot shows not the younger but %+v", idle)
	}
	if got.LastEnd <= 0 || got.OpStart < got.LastEnd || got.WaitSince < got.OpStart {
		t.Errorf("times: the last one ended at %d, this one started at %d and waits since %d", got.LastEnd, got.OpStart,
			got.WaitSince)
	}
	got.LastEnd, got.OpStart, got.WaitSince = 0, 0, 0
	uncount(&got)
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
		if ev.Comm.Name == "renamed" {
			compare(t, "the root", ev.Root, uint32(1))
		}
	}
}

func testTableFull(t *testing.T, play player) {
	var lines []string
	for n := 1; n <= 6; n++ {
		lines = append(lines, fmt.Sprintf("comm %d %032x %s c%d 0 1 1 host 0", n, n, none, n),
			fmt.Sprintf("start %d 0 16 7 0 -1 8 1", n))
		if n <= 4 { // operations without a slot are in the rings at once
			lines = append(lines, fmt.Sprintf("end %d 1 0", n))
		}
	}
	lines = append(lines, "close 2", "comm 7 "+idA+" "+none+" c7 0 1 1 host 0", "state 2 9", "start 2 0 16 7 0 -1 8 1")
	r := record(t, play, lines...)
	live := make(map[string]uint32)
	for _, s := range r.Slots() {
		live[s.Name] = s.Generation
		if s.Name == "c7" && (s.Launched != 0 || s.Seq != 0 || s.Begun != 0 || s.LastEnd != 0) {
			t.Errorf("a communicator that has done nothing shows what the one before it in its slot did: %+v", s)
		}
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
	lines := []string{"comm 1 " + idA + " " + none + " world 0 1 1 host 0"}
	for seq := 1; seq <= n; seq++ {
		lines = append(lines, "start 1 0 16 7 0 -1 8 1", fmt.Sprintf("end 1 %d 0", seq),
			fmt.Sprintf("life 1 2 5 1 %d 0 0 2 -1 0 0 0 %s act", seq, none))
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

// testTallies plays operations of all calls and classes of sizes, by two communicators of one name one after the other.
func testTallies(t *testing.T, play player) {
	for _, engine := range []string{"host", "nccl", "host+nccl"} {
		testTalliesOf(t, play, engine)
	}
}

func testTalliesOf(t *testing.T, play player, engine string) {
	t.Helper()
	var lines []string
	count := make(map[string]uint64)
	for round := 1; round <= 2; round++ {
		lines = append(lines, fmt.Sprintf("comm %d %s %s world 1 4 1 %s 0", round, idA, none, engine))
		for n, call := range lifecycle.Calls() {
			bytes := uint64(1)<<(2*n) + uint64(round-1) // above 4^n in the second round, up to 4^0 in the first
			lines = append(lines, fmt.Sprintf("start %d 0 %d 7 0 1 %d 1", round, call, bytes),
				fmt.Sprintf("end %d %d 0", round, n+1))
			if call.IsOperation() {
				count[fmt.Sprint(call, tape.SizeClass(bytes))]++
			}
		}
		lines = append(lines, fmt.Sprintf("start %d 0 16 7 0 -1 8 1", round), fmt.Sprintf("end %d 28 301", round),
			fmt.Sprintf("close %d", round))
	}
	r := record(t, play, lines...)
	tallies, err := r.AppendTallies(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, tally := range tallies {
		got[fmt.Sprint(tally.Call, tally.SizeClass)] += tally.Count()
		factor := (&tape.Signature{Call: tally.Call, Peer: 1}).BusFactor(1, 4)
		measured := factor > 0 && engine == "host"
		if measured != (tally.Bandwidth > 0) || tally.Name != "world" || tally.Engine != engine {
			t.Errorf("with the engine %s, a tally with a bus factor of %v is %+v", engine, factor, tally)
		}
	}
	compare(t, "what the tallies count", got, count)
}

// testTwoThreads plays two threads on two communicators, with more operations than the rings hold.
func testTwoThreads(t *testing.T, play player) {
	const n = 20000
	r := record(t, play, "comm 1 "+idA+" "+none+" one 0 2 1 host 0", "comm 2 "+idB+" "+none+" two 0 2 1 host 0",
		fmt.Sprintf("both 1 2 %d", n))
	checkTwoThreads(t, r, n, n)
}

// checkTwoThreads checks a tape onto which two threads wrote, on two communicators.
func checkTwoThreads(t *testing.T, r *tape.Reader, least, most uint64) {
	t.Helper()
	slots, err := r.AppendSlots(nil)
	if err != nil || len(slots) != 2 {
		t.Fatalf("%d slots, want two: %v", len(slots), err)
	}
	var ended uint64
	for _, s := range slots {
		// A writer that ends half-way may have begun one more operation than it shows.
		if s.Launched > most || s.Launched-s.Completed > 1 || s.Begun-s.Seq > 1 || s.Begun-s.Done > 1 {
			t.Errorf("a slot is %+v", s)
		}
		ended += s.Completed
	}
	if ended < least {
		t.Errorf("%d operations ended, of %d", ended, least)
	}
	last := make(map[string]uint64)
	for _, ev := range events(t, r) {
		if !ev.IsLife && ev.Op.Stage == tape.StageEnd {
			if ev.Op.Seq <= last[ev.Comm.Name] {
				t.Errorf("%s: operation %d follows %d", ev.Comm.Name, ev.Op.Seq, last[ev.Comm.Name])
			}
			last[ev.Comm.Name] = ev.Op.Seq
		}
	}
	tallies, err := r.AppendTallies(nil)
	if err != nil {
		t.Fatal(err)
	}
	var counted uint64
	for i := range tallies {
		counted += tallies[i].Count()
	}
	if counted < ended || counted > ended+2 {
		t.Errorf("%d operations are counted, of %d", counted, ended)
	}
}

// testKilled plays a process that is killed by another thread while two threads write, wherever they are.
func testKilled(t *testing.T, play player) {
	for _, n := range []uint64{1, 1000, 30000} {
		r := record(t, play, "comm 1 "+idA+" "+none+" one 0 2 1 host 0", "comm 2 "+idB+" "+none+" two 0 2 1 host 0",
			fmt.Sprintf("killed 1 2 %d", n))
		checkTwoThreads(t, r, n, math.MaxUint64)
		if r.Header().Closed || r.Liveness() != process.Dead {
			t.Errorf("closed is %v, the process is %v", r.Header().Closed, r.Liveness())
		}
	}
}

func testCrash(t *testing.T, play player) {
	r := record(t, play, "comm 1 "+idA+" "+none+" world 0 4 1 host 0", "start 1 0 16 7 0 -1 8 1", "wait 1 3", "crash")
	if r.Header().Closed || r.Liveness() != process.Dead {
		t.Errorf("closed is %v, the process is %v", r.Header().Closed, r.Liveness())
	}
	if slots := r.Slots(); len(slots) != 1 || slots[0].Launched != 1 || slots[0].Completed != 0 || slots[0].Wait != 3 {
		t.Errorf("its last moment: %+v", slots)
	}
	if n := len(events(t, r)); n != 2 {
		t.Errorf("%d events of 2", n)
	}
	if _, err := followed(t, r.Path()); !errors.Is(err, tape.ErrDied) {
		t.Errorf("a follower says %v", err)
	}
}

func testFollow(t *testing.T, play player) {
	r := record(t, play, "comm 1 "+idA+" "+none+" world 0 4 1 host 0", "start 1 0 16 7 0 -1 8 1", "phase 1 5",
		"life 1 8 11 4 0 0 0 7 -1 0 0 0 "+none+" end", "end 1 1 0")
	events, err := followed(t, r.Path())
	if !errors.Is(err, tape.ErrClosed) {
		t.Fatal(err)
	}
	var order []string
	for _, ev := range events {
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

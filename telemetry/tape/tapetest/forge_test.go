package tapetest_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// A forged tally is read as one, in each place up to the last.
func TestForgedTallies(t *testing.T) {
	forge := tapetest.Forge{Host: "h", Job: "j", CreatedMono: 1, CreatedWall: 1}
	for i := range tapetest.MaxTallies {
		forge.Tallies = append(forge.Tallies, tape.Tally{
			Index: i, Name: "world", Engine: "host", Call: lifecycle.CallAllReduce, SizeClass: uint8(i), Bytes: 1 << 40,
			Ordinary: 3, OrdinaryTime: time.Second, Time: time.Minute,
			Durations: [tape.DurationBuckets]uint64{1, 13: 4},
			Bandwidth: 5e9, Bandwidths: [tape.BandwidthBuckets]uint64{2, 11: 6},
		})
	}
	path := filepath.Join(t.TempDir(), "a.tape")
	if err := forge.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	r, err := tape.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.AppendTallies(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(forge.Tallies, got, cmpopts.IgnoreUnexported(tape.Tally{})); diff != "" {
		t.Errorf("-forged +read:\n%s", diff)
	}
}

// A forged process and its communicators are read, including communicators that have ended.
func TestForgedProcess(t *testing.T) {
	forge := tapetest.Forge{
		Host: "h", Job: "j", Rank: 2, JobSize: 4, SlowAfter: time.Second, StallAfter: time.Minute,
		CreatedMono: 1, CreatedWall: 1, LatchMono: 5, LatchWall: 7, Terminated: 8, Seen: 9,
		Roots: map[uint32]uint32{2: 1},
	}
	place := tape.Place{Node: 1, Local: 2, Locals: 300, Connections: 3, PXN: tape.PXNDisabled}
	forge.Slots = []tape.Slot{
		{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Size: 2}, Generation: 1, Root: 1,
			Launched: 3, Completed: 2, Begun: 3, Done: 2, Seq: 3, OpStart: 6, LastEnd: 5, Wait: 1, WaitSince: 7,
		},
		{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{3}, Name: "idle", Size: 2, Place: place}, Index: 3,
			Generation: 3, Root: 1, Launched: 3, Completed: 3, Seq: 3, OpStart: 6, LastEnd: 7, Wait: -1,
		},
		{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{4}, Name: "done", Size: 2}, Index: 4, Generation: 4, Root: 1,
			Launched: 3, Completed: 3, Seq: 3, OpStart: 6, LastEnd: 7, Wait: -1, CallStart: 6, Marked: true,
			Progress: 1,
		},
		{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{5}, Name: "launched", Size: 2}, Index: 5, Generation: 5,
			Root: 1, Launched: 3, Completed: 3, Begun: 3, Done: 3, Seq: 3, OpStart: 6, LastEnd: 7, Wait: -1,
			CallStart: 6, Marked: true, Unproven: true, Proven: 1, Progress: 1,
		},
	}
	ended := tape.CommInfo{ID: lifecycle.CommID{2}, Parent: lifecycle.CommID{1}, Name: "ended", Size: 2, Place: place}
	forge.Comm(3, 2, ended)
	forge.Op(2, tape.OpRecord{Time: 4, Stage: tape.StageEnd, Seq: 1, Wait: -1})
	path := filepath.Join(t.TempDir(), "a.tape")
	if err := forge.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	r, err := tape.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := r.Header()
	if h.Rank != 2 || h.JobSize != 4 || h.SlowAfter != time.Second || h.StallAfter != time.Minute ||
		h.Terminated != 8 || h.Seen != 9 || h.Wall(6).UnixNano() != 8 {
		t.Errorf("the header is %+v", h)
	}
	slots, err := r.AppendSlots(nil)
	if diff := cmp.Diff(forge.Slots, slots); diff != "" || err != nil {
		t.Errorf("%v; slots (-forged +read):\n%s", err, diff)
	}
	for ev, err := range r.Events() {
		if err != nil || ev.Comm != ended || ev.Generation != 2 || ev.Root != 1 {
			t.Errorf("%v; event %+v", err, ev)
		}
	}
}

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

// What is forged as a tally is read as one, whichever place it has, up to the last.
func TestForgedTallies(t *testing.T) {
	forge := tapetest.Forge{Host: "h", Job: "j", CreatedMono: 1, CreatedWall: 1}
	for i := range tapetest.MaxTallies {
		forge.Tallies = append(forge.Tallies, tape.Tally{
			Index: i, Name: "world", Engine: "host", Call: lifecycle.CallAllReduce, SizeClass: uint8(i), Bytes: 1 << 40,
			Ordinary: 3, OrdinaryTime: time.Second, Time: time.Minute, Durations: [tape.DurationBuckets]uint64{1, 13: 4},
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

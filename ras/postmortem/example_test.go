package postmortem_test

import (
	"fmt"
	"log"
	"os"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Tapes of a job's processes lie in one folder; here it is one process, whose call was given up.
func ExampleRead() {
	dir, err := os.MkdirTemp("", "tapes-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w, err := tape.Create(tape.Config{Dir: dir, Job: "train"})
	if err != nil {
		log.Fatal(err)
	}
	world := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 0, Size: 2})
	seq := world.Start(7, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 0)
	world.Wait(1)
	world.End(seq, lifecycle.CodeTimeout)
	world.Life(tape.LifeRecord{
		Call: lifecycle.CallAllReduce, Stage: tape.StageEnd, Seq: 7, Peer: 1, Code: lifecycle.CodeTimeout,
		Text: "nobody came in 30 s",
	})
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	report, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range report.Findings {
		fmt.Println(f.Reason, f.Culprits)
	}
	// Output: not_entered [rank 1]
}

// Operations that ended well are counted by kind, even if the tape has no room for all their records.
func ExampleReport() {
	dir, err := os.MkdirTemp("", "tapes-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w, err := tape.Create(tape.Config{Dir: dir, Job: "train"})
	if err != nil {
		log.Fatal(err)
	}
	world := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 0, Size: 1})
	for range 1000 {
		seq := world.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 4000}, 0)
		world.End(seq, lifecycle.CodeOK)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	report, err := postmortem.Read([]string{dir}, postmortem.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range report.Done {
		fmt.Printf("%d %s of %s, up to %d bytes each, %d in all\n", d.Operations, d.Call, d.Comm, d.UpTo, d.Bytes)
	}
	// Output: 1000 all_reduce of world, up to 4096 bytes each, 4000000 in all
}

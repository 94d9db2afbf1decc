package tape_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A communicator writes, a follower reads, and the in-flight table shows who waits for whom.
func Example() {
	dir, err := os.MkdirTemp("", "tape")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	w, err := tape.Create(tape.Config{Dir: dir, Job: "demo"})
	if err != nil {
		log.Print("going on without a tape: ", err) // w is nil, and its methods do nothing
	}
	comm := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 0, Size: 4})
	seq := comm.Start(0, tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1 << 20}, 0)
	comm.Wait(3)

	ctx := context.Background()
	f, err := tape.Follow(ctx, w.Path(), 0)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for _, s := range f.Slots() {
		fmt.Printf("%s: %v number %d waits for rank %d\n", s.Name, s.Op.Call, s.Launched, s.Wait)
	}

	comm.End(seq, lifecycle.CodeOK)
	comm.Close()
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	for {
		ev, err := f.Next(ctx)
		if errors.Is(err, tape.ErrClosed) {
			fmt.Println("closed")
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.Comm.Name, ev.Op.Seq, ev.Op.Stage, ev.Op.Wait)
	}
	// Output:
	// world: all_reduce number 1 waits for rank 3
	// world 1 start -1
	// world 1 wait 3
	// world 1 end -1
	// closed
}

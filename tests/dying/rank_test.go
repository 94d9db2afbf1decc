package dying

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// partVariable makes the test's binary a rank in a round.
const partVariable = "CARILLONTEST_DYING_PART"

// fault is the fault of the victim while the communicator is made.
type fault string

const (
	none   fault = ""
	killed fault = "killed"   // by SIGKILL
	ended  fault = "canceled" // the victim's context is canceled
)

// part is the part of a process in a round. The last of size ranks is excluded from a shrink, and joins in a grow.
type part struct {
	Rank, Size int
	Phase      string
	Host       string
	Fault      fault // of this rank
	After      time.Duration
	// Arrival is how long ranks wait for a rank that may have died before it came to where they meet: nobody can know
	// of its death.
	Arrival time.Duration
}

// said is a line that a rank prints.
type said struct {
	What   string        // "id", "begins", "ready" or "end"
	ID     string        `json:",omitempty"`
	Took   time.Duration `json:",omitempty"` // how long the making of the communicator took
	Code   lifecycle.Code
	Peer   int // the rank of a PeerError; -1 for none
	Text   string
	Failed bool // the call failed, rather than a barrier afterwards
}

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(partVariable); ok {
		var p part
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			panic(err)
		}
		p.play(context.Background())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func say(s said) {
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		panic(err)
	}
}

func (p *part) play(ctx context.Context) {
	rt, err := ccl.New(ccl.Config{
		Engine: host.Kind(),
		Fabric: fabric.Config{HostID: p.Host, SocketIfname: "=lo"}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	first, second := p.id(rt, in), ccl.UniqueID{}
	if p.Phase == "grow" {
		second = p.id(rt, in)
	}
	joins := p.Phase == "grow" && p.Rank == p.Size-1
	var comm, made *ccl.Comm
	if p.Phase != "init" && !joins {
		n := p.Size
		if p.Phase == "grow" {
			n--
		}
		if comm, err = rt.InitRank(ctx, first, n, p.Rank); err == nil {
			err = ccl.Barrier(ctx, comm)
		}
		if err != nil {
			panic(err)
		}
	}
	say(said{What: "begins"})
	if !in.Scan() {
		panic(fmt.Sprintf("the round ended before rank %d was told to begin: %v", p.Rank, in.Err()))
	}
	defer func() {
		untilOver()
		runtime.KeepAlive(comm) // otherwise the other ranks would be told of a leak
		runtime.KeepAlive(made)
	}()
	call, cancel := context.WithTimeout(ctx, p.Arrival) // bounds the wait for a rank that never came
	defer cancel()
	switch p.Fault {
	case none:
	case killed:
		time.AfterFunc(p.After, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	case ended:
		time.AfterFunc(p.After, cancel)
	}
	begun := time.Now()
	switch {
	case p.Phase == "init":
		made, err = rt.InitRank(call, first, p.Size, p.Rank)
	case p.Phase == "split":
		made, err = comm.Split(call, 0, p.Rank)
	case p.Phase == "shrink" && p.Rank == p.Size-1:
		return
	case p.Phase == "shrink":
		made, err = comm.Shrink(call, []int{p.Size - 1}, ccl.ShrinkAbort)
	case joins:
		made, err = rt.JoinGrow(call, second, p.Size, p.Rank)
	case p.Rank > 0:
		made, err = comm.Grow(call, ccl.UniqueID{}, p.Size)
	default:
		made, err = comm.Grow(call, second, p.Size)
	}
	end := said{What: "end", Took: time.Since(begun), Failed: err != nil, Peer: -1}
	if err == nil {
		say(said{What: "ready", Took: end.Took})
		if p.Fault == killed {
			untilOver() // the fault is about to happen
		}
		err = ccl.Barrier(ctx, made)
	}
	if peer, ok := errors.AsType[*ccl.PeerError](err); ok {
		end.Peer = peer.Rank
	}
	if end.Code = lifecycle.CodeOf(err); err != nil {
		end.Text = err.Error()
	}
	say(end)
}

// untilOver waits for the end of the round, when the process is killed.
func untilOver() { _, _ = io.Copy(io.Discard, os.Stdin) }

// id returns the next unique id: rank 0 makes it, the others read it. All ranks wait until the round goes on.
func (p *part) id(rt *ccl.Runtime, in *bufio.Scanner) (id ccl.UniqueID) {
	if p.Rank == 0 {
		id, err := rt.NewUniqueID()
		if err != nil {
			panic(err)
		}
		text, err := id.MarshalText()
		if err != nil {
			panic(err)
		}
		say(said{What: "id", ID: string(text)})
	}
	if !in.Scan() {
		panic(fmt.Sprintf("the round ended before rank %d had an id: %v", p.Rank, in.Err()))
	}
	if err := id.UnmarshalText(in.Bytes()); err != nil {
		panic(err)
	}
	return id
}

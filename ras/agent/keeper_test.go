package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// TestKeeper: a Keeper reports what happens to its processes, in order, and knows it.
func TestKeeper(t *testing.T) {
	self, err := mesh.Self(-1, 0)
	if err != nil {
		t.Fatal(err)
	}
	self.Keeper = self.Name
	events := make(chan mesh.Event, 32)
	var exits []int
	exited := func(m mesh.Member, _ process.Exit) { exits = append(exits, m.Rank) }
	k := NewKeeper(func(e mesh.Event) { events <- e }, exited)
	want := func(what string, rank int, state mesh.State) {
		t.Helper()
		select {
		case e := <-events:
			if e.What() != what || e.Member.Rank != rank || e.State != state {
				t.Errorf("%v (%v), want that rank %d is %s", e, e.State, rank, what)
			}
		case <-time.After(time.Minute):
			t.Fatalf("it isn't told that rank %d is %s", rank, what)
		}
	}
	closed := false
	start := func(rank int) *exec.Cmd {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		k.Add(self.Keep("", process.ID{PID: cmd.Process.Pid}, rank, 2), func() bool { return closed })
		want("joined", rank, mesh.Alive)
		return cmd
	}
	signal := func(cmd *exec.Cmd, sig syscall.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	one, zero := start(1), start(0)
	signal(zero, syscall.SIGSTOP)
	want("stopped", 0, mesh.Stopped)
	signal(zero, syscall.SIGCONT)
	want("resumed", 0, mesh.Alive)
	signal(zero, syscall.SIGKILL)
	_ = zero.Wait()
	want("dead", 0, mesh.Dead)
	k.Left(k.Members()[1].Member.Name)
	want("left", 1, mesh.Left)
	signal(one, syscall.SIGKILL) // it has left, however it ends
	_ = one.Wait()
	closed = true
	two := start(2)
	signal(two, syscall.SIGKILL)
	_ = two.Wait()
	want("left", 2, mesh.Left)

	var states []mesh.State
	for _, s := range k.Members() {
		states = append(states, s.State)
	}
	if !slices.Equal(states, []mesh.State{mesh.Dead, mesh.Left, mesh.Left}) || len(events) > 0 {
		t.Errorf("the states are %v, and %d events more are told", states, len(events))
	}
	k.Await(t.Context()) // returns at once, as all have ended

	closed = false
	k.Add(self.Keep("", process.ID{PID: os.Getpid()}, 3, 2), func() bool { return false })
	want("joined", 3, mesh.Alive)
	k.mu.Lock()
	p := k.members[fmt.Sprintf("%s-%d", self.Host, os.Getpid())]
	k.ended(p, process.Exit{Known: true}) // as of a process that exited with 0
	k.mu.Unlock()
	want("left", 3, mesh.Left)
	if p.Cause != mesh.CauseExit || !p.Exit.Known {
		t.Errorf("rank 3 left: %v, %v", p.Cause, p.Exit)
	}

	four, five := start(4), start(5)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	k.Await(now) // not for ranks 4 and 5
	signal(four, syscall.SIGKILL)
	signal(five, syscall.SIGKILL)
	k.Await(t.Context())
	if len(events) != 2 {
		t.Errorf("%d events are told by the time that both have ended", len(events))
	}
	_, _ = four.Wait(), five.Wait()
	k.Close()
	if slices.Sort(exits); !slices.Equal(exits, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("ranks %v have exited, as it says", exits)
	}
}

// TestKeptProcessesAreJudgedByTheirKeeper: the keeper coordinates, asks for their notes, and is not in its verdicts.
func TestKeptProcessesAreJudgedByTheirKeeper(t *testing.T) {
	keeper := mesh.Member{Name: "a-9", Host: "a", Rank: -1, Keeper: "a-9"}
	m := NewMachine(keeper)
	members := Membership{[]mesh.Status{
		{Member: mesh.Member{Name: "a-1", Host: "a", Rank: 0, Keeper: "a-9"}},
		{Member: mesh.Member{Name: "a-2", Host: "a", Rank: 1, Keeper: "a-9"}, State: mesh.Dead, Cause: mesh.CauseExit},
	}}
	now := time.Unix(1000, 0)
	m.Step(now, members)
	if m.Leader() != keeper.Name {
		t.Fatalf("%q coordinates, want the keeper", m.Leader())
	}
	m.Step(now, Trouble{})
	for _, e := range m.Step(now.Add(time.Second), Tick{}) {
		if ask, ok := e.(AskNotes); ok {
			if !slices.Equal(ask.Of, []string{"a-1", "a-2"}) {
				t.Errorf("it asks for the notes of %q", ask.Of)
			}
			return
		}
	}
	t.Error("it asks nobody")
}

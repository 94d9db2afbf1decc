package agent

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// TestKeptElsewhere: the states of another agent's processes follow from the state of that agent. Processes that had
// ended before stay so; the others are never taken for dead.
func TestKeptElsewhere(t *testing.T) {
	keeper := mesh.Member{Name: "far-9", Host: "far", ID: process.ID{PID: 9}, Rank: -1, Keeper: "far-9"}
	kept := []mesh.Status{
		{Member: keeper.Keep("", process.ID{PID: 1}, 0, 4)},
		{Member: keeper.Keep("", process.ID{PID: 2}, 1, 4), State: mesh.Dead, Cause: mesh.CauseExit},
		{Member: keeper.Keep("", process.ID{PID: 3}, 2, 4), State: mesh.Left},
		{Member: keeper.Keep("", process.ID{PID: 4}, 3, 4), State: mesh.Stopped, Cause: mesh.CauseSignal},
	}
	l := list{Members: listOf(kept), at: time.Now()}
	for state, want := range map[mesh.State]string{
		mesh.Alive:       "0 alive told, 3 stopped signal, 1 dead exit, 2 left told",
		mesh.Suspect:     "0 suspect silence, 3 stopped signal, 1 dead exit, 2 left told",
		mesh.Unreachable: "0 unreachable silence, 3 unreachable silence, 1 dead exit, 2 left told",
		mesh.Dead:        "0 unreachable its agent is gone, 3 unreachable its agent is gone, 1 dead exit, 2 left told",
		mesh.Left:        "0 unreachable its agent is gone, 3 unreachable its agent is gone, 1 dead exit, 2 left told",
	} {
		var got []string
		for _, s := range l.statuses(&mesh.Status{Member: keeper, State: state, Cause: mesh.CauseSilence}) {
			got = append(got, rankText(s.Member.Rank)+" "+s.State.String()+" "+s.Cause.String())
			if s.Member.Host != "far" || s.Member.Keeper != keeper.Name || s.Member.JobSize != 4 {
				t.Errorf("a member is %+v", s.Member)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("when the agent is %v: %s, want %s", state, text, want)
		}
	}
}

// TestKeptContainers: here, too, another agent's processes in containers have their containers' host names. Their
// members have the same names as by an agent that doesn't tell the host names.
func TestKeptContainers(t *testing.T) {
	keeper := mesh.Member{Name: "far-9", Host: "far", ID: process.ID{PID: 9}, Rank: -1, Keeper: "far-9"}
	kept := []mesh.Status{
		{Member: keeper.Keep("far", process.ID{PID: 1}, 0, 2)},
		{Member: keeper.Keep("pod-1", process.ID{PID: 2}, 1, 2)},
		{Member: keeper.Keep("pod-2", process.ID{PID: 2}, 2, 2).After(1)},
	}
	m := message{Kind: tellKept, From: keeper.Name, Kept: &list{Members: listOf(kept)}}
	told, err := decode(m.encode())
	if err != nil {
		t.Fatal(err)
	}
	var got []mesh.Member
	for _, s := range told.Kept.statuses(&mesh.Status{Member: keeper, State: mesh.Alive}) {
		got = append(got, s.Member)
	}
	if !slices.Equal(got, []mesh.Member{kept[0].Member, kept[1].Member, kept[2].Member}) {
		t.Errorf("they are %+v, want %+v", got, kept)
	}
	if text := fmt.Sprint(got); text != "[rank 0 (far-1) rank 1 (pod-1-2) rank 2 (pod-2-2)]" {
		t.Errorf("they are %s", text)
	}
	if got[0].Name != "far-1" || got[1].Name != "far-2" || got[1].MachineName() != "far" {
		t.Errorf("they are members %s and %s, the latter on %s", got[0].Name, got[1].Name, got[1].MachineName())
	}
	if got[2].Name != "far-2.1" {
		t.Errorf("the second process with number 2 is member %s", got[2].Name)
	}
}

// TestListFitsAQuestion: a list fits, whatever the agent's machine and the containers are called.
func TestListFitsAQuestion(t *testing.T) {
	far := strings.Repeat("<", mesh.MaxHost)
	keeper := mesh.Member{Name: far + "-4194304", Host: far, ID: process.ID{PID: 1 << 22}, Rank: -1}
	keeper.Keeper = keeper.Name
	for _, host := range []string{
		strings.Repeat("x", mesh.MaxHost), strings.Repeat(">", mesh.MaxHost), strings.Repeat(`\`, 20), "\x01", "<",
	} {
		var kept []mesh.Status
		for i := range maxListed + 1 {
			id := process.ID{PID: 1<<22 - i}
			kept = append(kept, mesh.Status{
				Member: keeper.Keep(host, id, 1<<30-i, 1<<30), State: mesh.Dead,
				Cause: mesh.CauseExit, Exit: process.Exit{Known: true, Signal: 64, Core: true},
			})
		}
		l := list{Turn: math.MaxUint64, Members: listOf(kept)}
		for i := range l.Members {
			l.Members[i].Age = math.MinInt64
		}
		m := message{Kind: tellKept, From: keeper.Name, Kept: &l}
		if n := len(m.encode()); n > mesh.MaxQuestion {
			t.Errorf("%s: the question has %d bytes, want at most %d", host, n, mesh.MaxQuestion)
		}
		if l.Members[0].Host == "" {
			t.Errorf("%s: no container is named", host)
		}
	}
}

// TestAnyHostNameIsTold: a list is accepted, whatever a process's host is called.
func TestAnyHostNameIsTold(t *testing.T) {
	keeper := mesh.Member{Name: "far-9", Host: "far", ID: process.ID{PID: 9}, Rank: -1, Keeper: "far-9"}
	for _, host := range []string{
		strings.Repeat(`\u0001`, 20), strings.Repeat("\uFFFD", 30), strings.Repeat("a\xff", 32),
		strings.Repeat("x", 1000),
	} {
		kept := []mesh.Status{{Member: keeper.Keep(host, process.ID{PID: 1}, 0, 1)}}
		m := message{Kind: tellKept, From: keeper.Name, Kept: &list{Members: listOf(kept)}}
		told, err := decode(m.encode())
		if err != nil {
			t.Errorf("%q: %v", host, err)
			continue
		}
		got := told.Kept.statuses(&mesh.Status{Member: keeper, State: mesh.Alive})[0].Member
		if got != kept[0].Member || len(got.Host) > mesh.MaxHost || got.Host == "far" {
			t.Errorf("%q: it is %+v, want %+v", host, got, kept[0].Member)
		}
	}
	long := list{Members: []listed{{PID: 1, Host: strings.Repeat("x", 1000)}}} // of an agent that doesn't cut it
	if err := long.check(); err != nil {
		t.Error(err)
	}
	if m := long.statuses(&mesh.Status{Member: keeper})[0].Member; len(m.Host) > mesh.MaxHost {
		t.Errorf("it is of host %s", m.Host)
	}
}

// TestLostAgentLeavesItsProcessesUnknown: no verdict says that a process is out of reach because its agent is gone.
func TestLostAgentLeavesItsProcessesUnknown(t *testing.T) {
	now := time.Now()
	m := member{}
	m.observe(mesh.Status{State: mesh.Unreachable, Cause: mesh.CauseSilence, Since: now}, now)
	m.observe(mesh.Status{State: mesh.Unreachable, Cause: mesh.CauseUntold, Since: now}, now)
	if _, known := m.fate(); m.phase != silent || known {
		t.Errorf("its phase is %v", m.phase)
	}
}

// TestNotesOfAnAgent: an agent's answer has the notes of all its processes, and of no others.
func TestNotesOfAnAgent(t *testing.T) {
	long := make([]verdict.Slot, 500)
	b := encodeNotes([]verdict.Note{{Member: "far-1", Slots: long}, {Member: "far-2"}, {Member: "near-3"}}, nil)
	if len(b) > mesh.MaxAnswer {
		t.Errorf("the answer has %d bytes", len(b))
	}
	var names []string
	for _, n := range decodeNotes("far-9", b, func(of string) bool { return strings.HasPrefix(of, "far-") }) {
		names = append(names, n.Member)
	}
	if !slices.Equal(names, []string{"far-1", "far-2"}) {
		t.Errorf("the notes are of %q", names)
	}
	if notes := decodeNotes("far-9", []byte("["), nil); notes != nil {
		t.Errorf("garbage has notes: %v", notes)
	}
}

// TestKeptIsAskedUnlocked: a Keeper holds its lock while it tells the agent of an event. An agent that asked for the
// Keeper's processes with its own lock held would deadlock with it.
func TestKeptIsAskedUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := twoProcesses(t, func(int) func(context.Context, string, []byte) []byte {
			return stub(t, func(*message) []byte { return nil })
		})
		defer func() {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}()
		var a *Agent
		asked := 0
		a = New(j.Ranks[0].Process.Member(), nil, Config{Kept: func() []mesh.Status {
			asked++
			if !a.mu.TryLock() {
				t.Error("the agent is locked while it asks")
				return nil
			}
			a.mu.Unlock()
			return nil
		}})
		a.Meet(j.Ranks[0].Mesh)
		a.membership()
		a.outdated()
		a.tellList(t.Context(), nil)
		a.kept()
		if asked != 4 {
			t.Errorf("the agent asks %d times, want 4", asked)
		}
	})
}

package node

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// TestMeeting: the environment that the launcher set for a rank determines where agents of a job's machines meet; over
// the network they meet only with a secret.
func TestMeeting(t *testing.T) {
	self, err := mesh.Self(-1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return // a rank's environment can't be read here
	}
	const secret = "0123456789abcdef"
	torch := []string{"RANK=2", "WORLD_SIZE=4", "MASTER_PORT=29500", "CARILLON_JOB=made-up"}
	for name, c := range map[string]struct {
		env      []string
		join     []string
		secret   string
		machines string
		refused  bool
	}{
		"one machine":   {env: []string{"LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node0"}, secret: secret},
		"several":       {env: []string{"LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node0"}, secret: secret, machines: "node0"},
		"rank's secret": {env: []string{"MASTER_ADDR=node0", "CARILLON_JOB_SECRET=" + secret}, machines: "node0"},
		"no secret":     {env: []string{"LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node0"}, refused: true},
		"loopback":      {env: []string{"LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"}, machines: "127.0.0.1"},
		"said otherwise": {
			env: []string{"MASTER_ADDR=node0"}, join: []string{"a", "b:7"}, secret: secret, machines: "a b:7",
		},
	} {
		cmd := exec.CommandContext(t.Context(), "cat")
		cmd.Env = slices.Concat(torch, c.env)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		text := []byte("it runs") // only then is everything in /proc about a process complete
		_, wrote := in.Write(text)
		if _, err := io.ReadFull(out, text); err != nil || wrote != nil {
			t.Fatal(wrote, err)
		}
		s := settings{Config: Default()}
		s.RAS.Join, s.World.Secret = c.join, []byte(c.secret)
		at, err := s.meetingOf(cmd.Process.Pid, "job", self)
		if ended := errors.Join(in.Close(), cmd.Wait()); ended != nil {
			t.Fatal(ended)
		}
		if strings.Join(at.machines, " ") != c.machines ||
			c.refused != errors.Is(err, errNoSecret) || err != nil && !c.refused {
			t.Errorf("%s: %q, %v; want %q", name, at.machines, err, c.machines)
		}
		if onLoopback := !at.mesh.Advertise.IsValid(); c.machines != "" && onLoopback != (name == "loopback") {
			t.Errorf("%s: it advertises %v", name, at.mesh.Advertise)
		}
	}
}

// TestMeetingAnew: an agent meets others where the latest process says, and keeps doing so.
func TestMeetingAnew(t *testing.T) {
	self, err := mesh.Self(-1, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := settle(Default())
	s.RAS.Addr = "127.0.0.1:0"
	keeper := agent.NewKeeper(func(mesh.Event) {}, func(mesh.Member, process.Exit) {})
	defer keeper.Close()
	r, err := newKeptRAS(s, &keptJob{agent: &Agent{self: self}, conditions: &health.Conditions{}, keeper: keeper})
	if err != nil {
		t.Fatal(err)
	}
	r.start(nil, "", nil)
	defer func() {
		r.stop(t.Context())
		if err := s.sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	at := func(secret string) *mesh.Mesh {
		m := meeting{
			mesh:     mesh.Config{Self: self, Secret: []byte(strings.Repeat(secret, 32)), Job: "job"},
			machines: []string{"127.0.0.1:1"},
		}
		if secret == "" {
			m = meeting{}
		}
		if err := r.meetAgents(&m); err != nil {
			t.Fatal(err)
		}
		return r.mesh.Load()
	}
	if at("") != nil {
		t.Error("it meets others of a job that has none")
	}
	first := at("a")
	if first == nil || at("a") != first || at("") != first {
		t.Error("it meets others anew, and nothing has changed")
	}
	if second := at("b"); second == first {
		t.Error("it meets others where they were before")
	}
}

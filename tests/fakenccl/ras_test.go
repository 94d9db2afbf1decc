package fakenccl_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// held is a job that stays as it is until end is called.
type held struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Reader
	addr  string
}

func hold(t *testing.T, version string, env ...string) *held {
	t.Helper()
	h := &held{t: t, addr: e2e.FreeAddr(t)}
	h.cmd = exec.CommandContext(t.Context(), fakenccl.Program(t, out, "held"), "processes", "4")
	h.cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+fakenccl.Build(t, out, version), "NCCL_RAS_ADDR="+h.addr)
	h.cmd.Env = append(h.cmd.Env, env...)
	var err error
	h.input, err = h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd.Stdout, h.cmd.Stderr = write, write
	h.lines = bufio.NewReader(read)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	t.Cleanup(func() { read.Close() })
	return h
}

// pids returns the pids of the ranks, once all are held.
func (h *held) pids() [4]int {
	h.t.Helper()
	var pids [4]int
	for range pids {
		line, err := h.lines.ReadString('\n')
		var rank, pid int
		if _, scan := fmt.Sscanf(line, "rank %d of process %d is held", &rank, &pid); scan != nil {
			h.t.Fatalf("%q: %v, %v", line, scan, err)
		}
		pids[rank] = pid
	}
	return pids
}

// end lets the job end, and returns its output since then, and whether it succeeded.
func (h *held) end() (string, bool) {
	h.t.Helper()
	h.input.Close()
	printed, err := io.ReadAll(h.lines)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(printed), h.cmd.Wait() == nil
}

// dial connects to one of the job's processes, once one is listening.
func (h *held) dial() net.Conn {
	h.t.Helper()
	for {
		conn, err := new(net.Dialer).DialContext(h.t.Context(), "tcp", h.addr)
		if err == nil {
			return conn
		}
		if h.t.Context().Err() != nil || !errors.Is(err, syscall.ECONNREFUSED) {
			h.t.Fatal(err)
		}
	}
}

// ask returns the answer to the commands, or the part that arrived before the connection broke. A process that is
// stopped doesn't answer; then another one is asked.
func (h *held) ask(commands ...string) string {
	h.t.Helper()
	for {
		conn := h.dial()
		fmt.Fprintf(conn, "CLIENT PROTOCOL 2\nTIMEOUT 5\n%s\n", strings.Join(commands, "\n"))
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			h.t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		conn.Close()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return string(answer)
		}
	}
}

type communicator struct {
	Size    int
	Missing []struct {
		Rank, PID int
	} `json:"missing_ranks"`
}

// communicators reads an answer in JSON.
func communicators(answer string) ([]communicator, error) {
	_, object, _ := strings.Cut(answer, "{")
	var status struct {
		Communicators []communicator
	}
	err := json.Unmarshal([]byte("{"+object), &status)
	return status.Communicators, err
}

// A status covers all communicators, including those that the answering process isn't in, and a stopped process. Before
// 2.29.2 its JSON lacks a comma for that process.
func TestStatus(t *testing.T) {
	for version, valid := range map[string]bool{"2.28.9": false, "2.31.2": true} {
		job := hold(t, version)
		pids := job.pids()
		comms, err := communicators(job.ask("SET FORMAT json", "STATUS"))
		var sizes []int
		for _, c := range comms {
			sizes = append(sizes, c.Size)
		}
		slices.Sort(sizes)
		if want := []int{2, 2, 4}; err != nil || !slices.Equal(sizes, want) {
			t.Errorf("%s: communicators of %d ranks (%v), want %d", version, sizes, err, want)
		}
		if answer := job.ask("VERBOSE STATUS"); !strings.Contains(answer, "RUNNING      OK") {
			t.Errorf("%s: the text is\n%s", version, answer)
		}
		if err := syscall.Kill(pids[3], syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		answer := ""
		for !strings.Contains(answer, "unresponsive") {
			answer = job.ask("SET FORMAT json", "STATUS")
		}
		if _, err := communicators(answer); (err == nil) != valid {
			t.Errorf("%s with a stopped rank: %v, want that it is valid: %v\n%s", version, err, valid, answer)
		}
		if err := syscall.Kill(pids[3], syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if printed, ok := job.end(); !ok {
			t.Errorf("%s: the job failed:\n%s", version, printed)
		}
	}
}

// A rank that skipped an operation is reported.
func TestStatusOfMismatch(t *testing.T) {
	job := hold(t, "2.28.9", "SKIP=1")
	pids := job.pids()
	want := regexp.MustCompile(`(?s)RUNNING  MISMATCH.*  3 ranks have launched up to operation 1\n` +
		`  Rank 3 has launched up to operation 0 -- GPU 3 managed by process ` + strconv.Itoa(pids[3]) + ` on node`)
	if answer := job.ask("VERBOSE STATUS"); !want.MatchString(answer) {
		t.Errorf("the status is\n%s\nwant %s", answer, want)
	}
	if printed, ok := job.end(); !ok {
		t.Errorf("the job failed:\n%s", printed)
	}
}

// nccl#1669: before 2.27.3, a status while a communicator is made crashes the process.
func TestPolledInit(t *testing.T) {
	for version, dies := range map[string]bool{"2.24.3": true, "2.26.5": true, "2.27.3": false, "2.31.2": false} {
		job := hold(t, version, "LATE=1")
		answer := job.ask("VERBOSE STATUS")
		printed, ok := job.end()
		if died(printed) != dies || ok == dies {
			t.Errorf("%s: want that it dies: %v; it printed\n%s", version, dies, printed)
		}
		if told := strings.Contains(answer, "No communicator data collected!"); told == dies {
			t.Errorf("%s: the status is\n%s", version, answer)
		}
	}
}

// A monitor is told of a process that dies, by any of the others.
func TestMonitor(t *testing.T) {
	job := hold(t, "2.31.2", "SURVIVE=1")
	pids := job.pids()
	var monitors []*bufio.Reader
	for range 16 { // so many that some connect to processes other than the one that dies
		conn := job.dial()
		defer conn.Close()
		fmt.Fprint(conn, "CLIENT PROTOCOL 2\nMONITOR lifecycle\n")
		monitor := bufio.NewReader(conn)
		for _, want := range []string{"SERVER PROTOCOL 2\n", "OK\n", "RAS Monitor Mode - watching for peer changes\n"} {
			if line, err := monitor.ReadString('\n'); line != want {
				t.Fatalf("%q (%v), want %q", line, err, want)
			}
		}
		monitors = append(monitors, monitor)
	}
	if err := syscall.Kill(pids[3], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, monitor := range monitors {
		line, err := monitor.ReadString('\n')
		if want := fmt.Sprintf("PEER_DEAD: Process %d on node", pids[3]); strings.Contains(line, want) {
			told++
		} else if err == nil {
			t.Errorf("%q, want %q", line, want)
		}
	}
	if told == 0 {
		t.Error("nobody was told")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // they would wait for the dead one
	}
	job.end()
}

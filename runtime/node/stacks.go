package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
)

const (
	// pySpyTime and pySpyOutput bound what py-spy may take and print.
	pySpyTime   = 3 * time.Second
	pySpyOutput = 1 << 20
	// mostExamined bounds the processes that are examined for a verdict, mostFrames the calls of a stack that are
	// shown.
	mostExamined = 4
	mostFrames   = 8
	// inNCCL is how many of a thread's innermost calls are searched for a call of NCCL.
	inNCCL = 3
)

// examine finds out where processes of this host that new open verdicts suspect are: in the kernel and, with py-spy if
// it is on the PATH, in Python. It looks once for each verdict and process, in the background; the result is evidence
// from the job's next look on.
func (j *keptJob) examine(open []verdict.Verdict) {
	fresh := j.suspect(open)
	if len(fresh) == 0 {
		return
	}
	j.running.also(func(ctx context.Context) {
		for _, p := range fresh {
			p.setStack(stackOf(ctx, p.tape.Process()))
		}
		j.ras.agent.Trouble()
	})
}

// suspect returns the processes that examine must look at. It drops the stacks that are no longer evidence.
func (j *keptJob) suspect(open []verdict.Verdict) (fresh []*keptProcess) {
	before, now := map[string][]string{}, map[string][]string{}
	for i := range open {
		id := open[i].ID
		before[id] = j.looked[id] // also processes no longer suspected: suspects may come and go
		now[id] = slices.Clone(before[id])
		for _, r := range open[i].Suspects() {
			if len(now[id]) < mostExamined && !slices.Contains(now[id], r.Member) && j.get(r.Member) != nil {
				now[id] = append(now[id], r.Member)
			}
		}
	}
	for _, p := range j.all() {
		switch name := p.telemetry.self.Name; {
		case examined(now, name) && !examined(before, name):
			fresh = append(fresh, p)
		case examined(j.looked, name) && !examined(now, name):
			p.setStack(nil)
		}
	}
	j.looked = now
	return fresh
}

// examined tells whether a process was examined for one of the verdicts.
func examined(looked map[string][]string, member string) bool {
	for _, members := range looked {
		if slices.Contains(members, member) {
			return true
		}
	}
	return false
}

func (p *keptProcess) setStack(lines []string) {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.stack = lines
}

// stackOf says where a process is, in sentences without the subject; none if it has ended.
func stackOf(ctx context.Context, id process.ID) (lines []string) {
	place, err := id.Place()
	if err != nil {
		return nil
	}
	text := map[byte]string{
		'R': "runs", 'S': "sleeps", 'D': "waits for a device, and can't be interrupted", 'T': "is stopped",
		't': "is held by a debugger",
	}[place.State]
	if text != "" {
		if place.Wait != "" {
			text += ", in the kernel's " + place.Wait
		}
		lines = append(lines, text)
	}
	if len(place.Stack) > 0 {
		lines = append(lines, "is in the kernel at "+chain(place.Stack))
	}
	if thread, frames, err := pythonStack(ctx, id.PID); err == nil && len(frames) > 0 {
		if _, err := id.Place(); err == nil { // the stack was this process's
			in := "is in Python"
			if thread != "" {
				in += ", on thread " + words.Line(thread) + ","
			}
			lines = append(lines, in+" at "+chain(frames))
		}
	}
	return lines
}

// chain formats a stack, the innermost call first.
func chain(calls []string) string {
	more := ""
	if len(calls) > mostFrames {
		calls, more = calls[:mostFrames], " ← …"
	}
	return strings.Join(calls, " ← ") + more
}

// pySpyThread is a thread, as py-spy dump --json prints it.
type pySpyThread struct {
	ID     int    `json:"os_thread_id"`
	Name   string `json:"thread_name"`
	Frames []pySpyFrame
}

type pySpyFrame struct {
	Name, Filename string
	Line           int
}

// callsNCCL tells whether the thread is where Python programs call NCCL: in the functions of torch.distributed that do,
// or in a binding named after NCCL, such as vLLM's pynccl.py.
func (t *pySpyThread) callsNCCL() bool {
	return slices.ContainsFunc(t.Frames[:min(len(t.Frames), inNCCL)], func(f pySpyFrame) bool {
		file := strings.ToLower(filepath.Base(f.Filename))
		return file == "distributed_c10d.py" || file == "_functional_collectives.py" ||
			strings.Contains(file, "nccl") || strings.HasPrefix(f.Name, "nccl")
	})
}

// pythonStack is the Python stack of a process, by py-spy: that of its main thread or, if the main thread doesn't call
// NCCL and another one does, of that thread, whose name is thread. Threads of autograd call NCCL where a hook runs.
func pythonStack(ctx context.Context, pid int) (thread string, calls []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pySpyTime)
	defer cancel()
	// Without --nonblocking, py-spy stops the process while it looks.
	cmd := exec.CommandContext(ctx, "py-spy", "dump", "--nonblocking", "--json", "--pid", strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil { // there is no py-spy
		return "", nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = out.Close() })() // even if a child of py-spy still holds it
	printed, err := io.ReadAll(io.LimitReader(out, pySpyOutput))
	if err != nil || len(printed) == pySpyOutput {
		cancel()
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return "", nil, err
	}
	var threads []pySpyThread
	if err := json.Unmarshal(printed, &threads); err != nil {
		return "", nil, err
	}
	isMain := func(t pySpyThread) bool { return t.ID == pid || t.Name == "MainThread" }
	at := slices.IndexFunc(threads, isMain)
	if at < 0 || !threads[at].callsNCCL() {
		if other := slices.IndexFunc(threads, func(t pySpyThread) bool { return t.callsNCCL() }); other >= 0 {
			at = other
			thread = cmp.Or(threads[at].Name, strconv.Itoa(threads[at].ID))
		}
	}
	if at < 0 {
		return "", nil, nil
	}
	for _, f := range threads[at].Frames {
		calls = append(calls, fmt.Sprintf("%s (%s:%d)", f.Name, filepath.Base(f.Filename), f.Line))
	}
	return thread, calls, nil
}

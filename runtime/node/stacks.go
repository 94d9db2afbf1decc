package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// examined is a process that was examined for a verdict.
type examined struct{ verdict, member string }

const (
	// pySpyTime and pySpyOutput bound what py-spy may take and print.
	pySpyTime   = 3 * time.Second
	pySpyOutput = 1 << 20
	// mostExamined bounds the processes that are examined for a verdict, mostFrames the calls of a stack that are told.
	mostExamined = 4
	mostFrames   = 8
)

// examine finds out where processes of this host that new open verdicts name are: in the kernel and, with py-spy if it
// is on the PATH, in Python. It looks once for each verdict and process, in the background; the result is evidence from
// the job's next look on.
func (j *keptJob) examine(open []verdict.Verdict) {
	still, named := map[examined]bool{}, map[string]bool{}
	var fresh []*keptProcess
	for i := range open {
		n := 0
		for _, c := range open[i].Culprits {
			p := j.get(c.Member)
			if p == nil || n == mostExamined {
				continue
			}
			n++
			key := examined{open[i].ID, c.Member}
			if still[key] = true; !j.looked[key] && !named[c.Member] {
				fresh = append(fresh, p)
			}
			named[c.Member] = true
		}
	}
	for key := range j.looked {
		if p := j.get(key.member); p != nil && !named[key.member] {
			p.setStack(nil)
		}
	}
	j.looked = still
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

func (p *keptProcess) setStack(lines []string) {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.stack = lines
}

// stackOf is where a process is: sentences without the subject; none if it has ended.
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
	if frames, err := pythonStack(ctx, id.PID); err == nil && len(frames) > 0 {
		if _, err := id.Place(); err == nil { // it was this process's
			lines = append(lines, "is in Python at "+chain(frames))
		}
	}
	return lines
}

// chain is a stack, the innermost call first.
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
	Frames []struct {
		Name, Filename string
		Line           int
	}
}

// pythonStack is the Python stack of a process's main thread, by py-spy.
func pythonStack(ctx context.Context, pid int) (calls []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pySpyTime)
	defer cancel()
	// Without --nonblocking it stops the process while it looks.
	cmd := exec.CommandContext(ctx, "py-spy", "dump", "--nonblocking", "--json", "--pid", strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil { // there is no py-spy
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = out.Close() })() // even if a child of py-spy still holds it
	printed, err := io.ReadAll(io.LimitReader(out, pySpyOutput))
	if err != nil || len(printed) == pySpyOutput {
		cancel()
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, err
	}
	var threads []pySpyThread
	if err := json.Unmarshal(printed, &threads); err != nil {
		return nil, err
	}
	for _, t := range threads {
		if t.ID != pid && t.Name != "MainThread" {
			continue
		}
		for _, f := range t.Frames {
			calls = append(calls, fmt.Sprintf("%s (%s:%d)", f.Name, filepath.Base(f.Filename), f.Line))
		}
	}
	return calls, nil
}

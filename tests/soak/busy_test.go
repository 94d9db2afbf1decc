package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// runBusy computes until its standard input ends, which happens when the process that started it ends in any way.
func runBusy(ctx context.Context) error {
	runtime.GOMAXPROCS(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		for range 1 << 16 {
		}
	}
	return nil
}

// crowd is a number of busy processes.
type crowd struct {
	began   time.Time
	members []*exec.Cmd
	inputs  []io.Closer
}

// gather starts n busy processes. dismiss ends them, even if not all could be started.
func gather(n int) (*crowd, error) {
	c := &crowd{began: time.Now()}
	for range n {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), roleVariable+"="+roleBusy)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return c, err
		}
		if err := cmd.Start(); err != nil {
			return c, fmt.Errorf("start busy process %d of %d: %w", len(c.members), n, err)
		}
		c.members, c.inputs = append(c.members, cmd), append(c.inputs, in)
	}
	return c, nil
}

// dismiss ends the processes, and returns the share of a core that each has got.
func (c *crowd) dismiss() (share float64, err error) {
	for _, in := range c.inputs {
		err = errors.Join(err, in.Close())
	}
	var used time.Duration
	for _, cmd := range c.members {
		err = errors.Join(err, cmd.Wait())
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	share = used.Seconds() / time.Since(c.began).Seconds() / float64(max(len(c.members), 1))
	c.members, c.inputs = nil, nil
	return share, err
}

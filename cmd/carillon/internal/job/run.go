package job

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs the job and blocks until all ranks of this host, and the processes that they started, have ended. An error
// means that the job could not be started: a *ConfigError, or the system's error. The Result says how a started job
// ended.
// When ctx ends, the job is ended as by SIGTERM. A job that was ended by a failure is started again, up to MaxRestarts
// times; the Result is that of the last run.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(cfg.Program[0])
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := cfg.makeFolders(); err != nil {
		return nil, err
	}
	s := newScreen(&cfg)
	result, err := cfg.run(ctx, path, s)
	cfg.leave(ctx, result, s)
	return result, err
}

func (c *Config) run(ctx context.Context, path string, out *screen) (*Result, error) {
	defer c.release()
	if err := c.complete(); err != nil {
		return nil, err
	}

	// Pdeathsig kills a rank when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	if c.TargetsFile != "" {
		if err := c.writeTargets(hostname); err != nil {
			return nil, err
		}
		defer os.Remove(c.TargetsFile) //nolint:errcheck // it may have been removed
	}

	for ; ; c.restarts++ {
		s := newSupervisor(c, out)
		if err := s.startAll(path, hostname); err != nil {
			s.kill()
			s.loop(ctx)
			return nil, err
		}
		s.sayUp()
		s.loop(ctx)
		result := s.result()
		s.sayDown(result)
		if result.First == nil || s.stopped || c.restarts == c.MaxRestarts {
			return result, nil
		}
		s.remark("restarting all ranks: restart %d of %d", c.restarts+1, c.MaxRestarts)
	}
}

// leave does what is left when the ranks have ended, and waits until all output is shown. After a signal, it waits for
// neither.
func (c *Config) leave(ctx context.Context, result *Result, out *screen) {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if result != nil && c.AtEnd != nil {
			if text := c.AtEnd(work); text != "" {
				out.stderr.say("%s", text)
			}
		}
		out.close()
	}()
	for _, last := range []<-chan struct{}{done, out.stdout.over, out.stderr.over} {
		for waiting := true; waiting; {
			select {
			case <-last:
				waiting = false
			case sig := <-c.Signals:
				if sig != unix.SIGPIPE {
					cancel()
					out.hurry()
				}
			case <-work.Done():
				out.hurry()
				<-last
				waiting = false
			}
		}
	}
}

// makeFolders makes the folders that the job writes to, and makes their names absolute, as a rank may change its
// directory.
func (c *Config) makeFolders() error {
	for _, folder := range []struct {
		flag string
		dir  *string
	}{{"--tape-dir", &c.TapeDir}, {"--tee", &c.TeeDir}} {
		if *folder.dir == "" {
			continue
		}
		abs, err := filepath.Abs(*folder.dir)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(abs, 0o700); err != nil {
			return &ConfigError{
				Field: folder.flag, Value: *folder.dir,
				Allowed: fmt.Sprintf("a folder that is there or can be made (%v)", err),
			}
		}
		*folder.dir = abs
	}
	return nil
}

func (c *Config) complete() (err error) {
	if c.MasterAddr == "" && c.Hosts <= 1 {
		c.MasterAddr = "127.0.0.1"
	}
	if c.MasterPort == 0 && c.Hosts <= 1 {
		if c.MasterPort, err = c.reserve(); err != nil {
			return err
		}
	}
	if c.TargetsFile != "" {
		c.healthPorts = make([]int, c.Ranks)
		for i := range c.healthPorts {
			if c.healthPorts[i], err = c.reserve(); err != nil {
				return err
			}
		}
	}
	if c.Secret == "" {
		c.Secret = rand.Text()
	}
	if c.Name == "" {
		// The name is the same on all hosts with the same secret, and reveals nothing about the secret.
		sum := sha256.Sum256(fmt.Appendf(nil, "carillon job name\n%s\n%s:%d", c.Secret, c.MasterAddr, c.MasterPort))
		c.Name = NameOf(c.Program[0], [4]byte(sum[:]))
	}
	return nil
}

// NameOf makes a name for a job without one: the program's name, and a part that tells jobs of the same program apart.
func NameOf(program string, tail [4]byte) string {
	return fmt.Sprintf("%.32s-%x", notInNames.ReplaceAllString(filepath.Base(program), "_"), tail)
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_]+`)

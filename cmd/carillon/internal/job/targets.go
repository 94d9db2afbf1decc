package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// targets tell Prometheus where the ranks of this host serve their metrics. Each rank is given a port of its own for
// its health endpoint, so that the file can be written before the first rank starts.
type targets struct {
	file  string
	ports []*port
}

// targetGroup is one element of Prometheus' file_sd_config, in JSON.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// newTargets reserves a port for each rank; nil when no file is asked for.
func newTargets(cfg *Config) (*targets, error) {
	if cfg.TargetsFile == "" {
		return nil, nil //nolint:nilnil // nil targets do nothing
	}
	file, err := filepath.Abs(cfg.TargetsFile)
	if err != nil {
		return nil, err
	}
	t := &targets{file: file}
	for range cfg.Ranks {
		p, err := reservePort()
		if err != nil {
			t.release()
			return nil, err
		}
		t.ports = append(t.ports, p)
	}
	return t, nil
}

// healthAddr is what the i-th rank is told to listen on; "" if it is told nothing.
func (t *targets) healthAddr(i int) string {
	if t == nil {
		return ""
	}
	return "127.0.0.1:" + strconv.Itoa(t.ports[i].number)
}

// write writes the file, all at once: Prometheus reads it whenever it changes. Its groups carry the labels job, rank
// and host.
func (t *targets) write(cfg *Config, hostname string) error {
	if t == nil {
		return nil
	}
	groups := make([]targetGroup, cfg.Ranks)
	for i := range groups {
		groups[i] = targetGroup{
			Targets: []string{t.healthAddr(i)},
			Labels: map[string]string{
				"job": cfg.Name, "rank": strconv.Itoa(cfg.firstRank() + i),
				"host": cfg.hostID(i, hostname),
			},
		}
	}
	text, err := json.MarshalIndent(groups, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(t.file, append(text, '\n')); err != nil {
		return &ConfigError{
			Field: "--sd-file", Value: cfg.TargetsFile,
			Allowed: fmt.Sprintf("a file that can be written, in a folder that is there (%v)", err),
		}
	}
	return nil
}

// replaceFile puts a file in the place of another, readable by all: Prometheus is somebody else.
func replaceFile(name string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// remove takes the file away: the job is over, and its ranks are not missed.
func (t *targets) remove() {
	if t != nil {
		_ = os.Remove(t.file) // gone is gone
	}
}

func (t *targets) release() {
	if t == nil {
		return
	}
	for _, p := range t.ports {
		p.release()
	}
}

package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// targetGroup is one element of Prometheus' file_sd_config, in JSON.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// healthAddr is the address of the i-th rank's health endpoint; "" if the rank chooses it.
func (c *Config) healthAddr(i int) string {
	if c.TargetsFile == "" {
		return ""
	}
	return "127.0.0.1:" + strconv.Itoa(c.healthPorts[i])
}

// writeTargets writes TargetsFile atomically, as Prometheus reads it whenever it changes.
func (c *Config) writeTargets(hostname string) error {
	groups := make([]targetGroup, c.Ranks)
	for i := range groups {
		groups[i] = targetGroup{
			Targets: []string{c.healthAddr(i)},
			Labels: map[string]string{
				"job": c.Name, "rank": strconv.Itoa(c.firstRank() + i), "host": c.hostID(i, hostname),
			},
		}
	}
	text, err := json.MarshalIndent(groups, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(c.TargetsFile, append(text, '\n')); err != nil {
		return &ConfigError{
			Field: "--sd-file", Value: c.TargetsFile,
			Allowed: fmt.Sprintf("a file that can be written, in a folder that is there (%v)", err),
		}
	}
	return nil
}

// replaceFile replaces a file atomically. All may read it, as Prometheus runs as another user.
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

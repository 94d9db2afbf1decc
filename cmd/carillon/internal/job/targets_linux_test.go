package job

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPrometheusFindsTheRanks reads the file while the job runs: it has the addresses that the ranks were given.
func TestPrometheusFindsTheRanks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "targets.json")
	if err := os.WriteFile(file, []byte("[]"), 0o600); err != nil { // left by a launcher that was killed
		t.Fatal(err)
	}
	t.Setenv("CARILLON_HEALTH_ADDR", "127.0.0.1:1") // three ranks can't share it
	j := begin(t, "address", Config{Ranks: 3, Nodes: 3, Hosts: 1, Name: "my-job", TargetsFile: file})
	addrs := map[string]string{}
	for range 3 {
		rank, addr, ok := strings.Cut(strings.TrimPrefix(<-j.lines, "["), "] ")
		if !ok {
			t.Fatalf("rank %q says nothing", rank)
		}
		addrs[rank] = addr
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []targetGroup
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var want []targetGroup
	for _, rank := range []string{"0", "1", "2"} {
		want = append(want, targetGroup{
			Targets: []string{addrs[rank]}, Labels: map[string]string{
				"job": "my-job", "rank": rank,
				"host": host + "-node-" + rank,
			},
		})
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("targets (-want +got):\n%s", d)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v: Prometheus can't read it", info.Mode(), err)
	}
	j.signals <- syscall.SIGTERM
	j.end()
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 0 {
		t.Errorf("the job left %v behind, %v", left, err)
	}
}

func TestTargetsFileThatCanNotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "missing", "targets.json")
	_, err := Run(t.Context(), Config{
		Program: []string{"true"}, Ranks: 1, Stdout: os.Stdout, Stderr: os.Stderr,
		TargetsFile: file,
	})
	var wrong *ConfigError
	if !errors.As(err, &wrong) || wrong.Field != "--sd-file" || wrong.Value != file {
		t.Errorf("%v, want a *ConfigError about --sd-file %s", err, file)
	}
	if _, err := os.Stat(filepath.Dir(file)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
}

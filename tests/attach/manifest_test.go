package attach

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestManifest: the DaemonSet's command line and environment are those of an agent that starts.
func TestManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/kubernetes/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Command []string
						Env     []struct{ Name, Value string }
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &set); err != nil || len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%v; it has %d containers, want 1", err, len(set.Spec.Template.Spec.Containers))
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := set.Spec.Template.Spec.Containers[0]
	var env []string
	for _, v := range agent.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	env = append(env, "CARILLON_HEALTH_ADDR=0.0.0.0:0", "CARILLON_HEALTH_TOKEN_FILE="+token) // of this test
	job := e2e.Start(t, env, agent.Command[0], agent.Command[1:]...)
	job.Await(`agent: a page for each process is at `)
	job.Signal(syscall.SIGTERM)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, job.Output())
	}
}

package attach

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestManifest: an agent starts with the DaemonSet's command line and environment. Agents look each other up by the
// name of its Service, and connect at the addresses of their nodes.
func TestManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/kubernetes/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var service struct {
		Metadata struct{ Name string }
		Spec     struct {
			ClusterIP string `yaml:"clusterIP"`
			Selector  map[string]string
		}
	}
	var set struct {
		Spec struct {
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					HostPID     bool   `yaml:"hostPID"`
					HostNetwork bool   `yaml:"hostNetwork"`
					DNSPolicy   string `yaml:"dnsPolicy"`
					Containers  []struct {
						Command []string
						Env     []struct{ Name, Value string }
					}
				}
			}
		}
	}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := errors.Join(documents.Decode(&service), documents.Decode(&set)); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("it has %d containers, want 1", len(pod.Containers))
	}
	if !pod.HostPID || !pod.HostNetwork || pod.DNSPolicy != "ClusterFirstWithHostNet" {
		t.Errorf("the pods are in namespaces of their own, or don't find a Service: %+v", pod)
	}
	if service.Spec.ClusterIP != "None" || !maps.Equal(service.Spec.Selector, set.Spec.Template.Metadata.Labels) {
		t.Errorf("the Service is not one of all agents: %+v", service.Spec)
	}
	at := slices.Index(pod.Containers[0].Command, "--join") + 1
	if at == 0 || pod.Containers[0].Command[at] != service.Metadata.Name {
		t.Errorf("agents don't join by the Service: %q", pod.Containers[0].Command)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := pod.Containers[0]
	var env []string
	for _, v := range agent.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	env = append(env, "CARILLON_HEALTH_ADDR=0.0.0.0:0", "CARILLON_HEALTH_TOKEN_FILE="+token) // for this test
	job := e2e.Start(t, env, agent.Command[0], agent.Command[1:]...)
	job.Await(`agent: a page for each process is at `)
	job.Signal(syscall.SIGTERM)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, job.Output())
	}
}

// TestManifestIsScraped: the configuration for Prometheus finds the DaemonSet's agents, and gives them the labels that
// the alerts need.
func TestManifestIsScraped(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../examples/kubernetes/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../examples/kubernetes/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
			Honor   bool   `yaml:"honor_labels"`
			Relabel []struct {
				Regex, Action string
				Target        string `yaml:"target_label"`
			} `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil || len(config.ScrapeConfigs) != 1 {
		t.Fatalf("%v; it has %d jobs, want 1", err, len(config.ScrapeConfigs))
	}
	job, host := config.ScrapeConfigs[0], false
	if job.JobName != "carillon-agent" || !job.Honor {
		t.Errorf("the job is %q, honor_labels: %v", job.JobName, job.Honor)
	}
	for _, r := range job.Relabel {
		host = host || r.Target == "host"
		if r.Action == "keep" && !strings.Contains(string(manifest), "name: "+r.Regex+",") &&
			!strings.Contains(string(manifest), "app: "+r.Regex+"}") {
			t.Errorf("it keeps %q, and the manifest has no such label or port", r.Regex)
		}
	}
	if !host {
		t.Error("its targets have no host")
	}
}

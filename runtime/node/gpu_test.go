package node_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
)

// TestGPUsAreWatched works with and without a GPU: the metrics and the check exist in any case.
func TestGPUsAreWatched(t *testing.T) {
	for value, watched := range map[string]bool{"": true, "on": true, "all": true, "off": false} {
		n := start(t, environ(map[string]string{"CARILLON_GPU": value}))
		url := strings.TrimSuffix(n.HealthURL(), "/")
		if code, body := get(t, url+"/metrics"); code != http.StatusOK ||
			strings.Contains(body, `ccl_gpu_devices{state="ok"}`) != watched {
			t.Errorf("CARILLON_GPU=%q: ccl_gpu_devices is exported: %v", value, !watched)
		}
		want := http.StatusNotFound
		if watched {
			want = http.StatusOK
		}
		if code, body := get(t, url+"/readyz/gpu"); code != want {
			t.Errorf("CARILLON_GPU=%q: /readyz/gpu answers %d %q, want %d", value, code, body, want)
		}
	}
}

// TestNoGPUIsSaid: without a GPU, the check passes and says so, to people and to machines.
func TestNoGPUIsSaid(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "") // so it is on any machine
	n := start(t)
	url := strings.TrimSuffix(n.HealthURL(), "/")
	const status = "no GPU: CUDA_VISIBLE_DEVICES leaves none"
	for path, want := range map[string]string{
		"/readyz?verbose": "[+]gpu ok: " + status + "\n", "/readyz/gpu?format=json": `"text": "` + status + `"`,
		"/": "<code>gpu</code>: " + status,
	} {
		var code int
		var body string
		for code == 0 || strings.Contains(body, "not started") { // the watch starts asynchronously
			code, body = get(t, url+path)
		}
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want %q:\n%s", path, code, want, body)
		}
	}
}

func TestGPUIsMisspelt(t *testing.T) {
	_, err := node.Start(t.Context(), environ(map[string]string{"CARILLON_GPU": "none"}))
	if err == nil || !strings.Contains(err.Error(), `CARILLON_GPU="none": want on`) {
		t.Errorf("%v", err)
	}
}

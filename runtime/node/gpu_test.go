package node_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
)

// TestGPUsAreWatched holds with and without a GPU: what is exported and checked is there in any case.
func TestGPUsAreWatched(t *testing.T) {
	for value, watched := range map[string]bool{"": true, "on": true, "all": true, "off": false} {
		n := start(t, environ(map[string]string{"CARILLON_GPU": value}))
		url := strings.TrimSuffix(n.HealthURL(), "/")
		if code, body := get(t, url+"/metrics"); code != http.StatusOK || strings.Contains(body, `ccl_gpu_devices{state="ok"}`) != watched {
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

func TestGPUIsMisspelt(t *testing.T) {
	_, err := node.Start(t.Context(), environ(map[string]string{"CARILLON_GPU": "none"}))
	if err == nil || !strings.Contains(err.Error(), `CARILLON_GPU="none": want on`) {
		t.Errorf("%v", err)
	}
}

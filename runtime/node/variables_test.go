package node_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
)

// TestProblemsNameTheirVariable: whoever sets a variable to what can't be obeyed is told its name, and not that of a field that only
// programs know.
func TestProblemsNameTheirVariable(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	two := map[string]string{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7"}
	for _, tc := range []struct {
		name, value string
		with        map[string]string
	}{
		{name: "RANK", value: "-1", with: map[string]string{"WORLD_SIZE": "2"}},
		{name: "CARILLON_JOB_SECRET", value: "short"},
		{name: "CARILLON_TAPE", value: "perhaps"},
		{name: "CARILLON_TAPE_DIR", value: "/dev/null"},
		{name: "CARILLON_HEALTH_ADDR", value: "nonsense"},
		{name: "CARILLON_HEALTH_ADDR", value: "127.0.0.1:99999"},
		{name: "CARILLON_HEALTH_ADDR", value: "0.0.0.0:0"},
		{name: "CARILLON_HEALTH_TOKEN", value: "short"},
		{name: "CARILLON_HEALTH_TOKEN_FILE", value: none},
		{name: "CARILLON_HEALTH_TLS_CERT", value: none},
		{name: "CARILLON_HEALTH_TLS_KEY", value: none, with: map[string]string{"CARILLON_HEALTH_TLS_CERT": none}},
		{name: "CARILLON_HEALTH_TLS_CLIENT_CA", value: none},
		{name: "CARILLON_HEALTH_TRUSTED_PROXIES", value: "proxy"},
		{name: "CARILLON_SLOW_THRESHOLD", value: "soon"},
		{name: "CARILLON_STALL_THRESHOLD", value: "1ns"},
		{name: "CARILLON_RAS", value: "perhaps"},
		{name: "CARILLON_RAS_ADDR", value: "nonsense"}, // also where nobody else is
		{name: "CARILLON_RAS_ADDR", value: "127.0.0.1:99999", with: two},
		{name: "CARILLON_RAS_SEEDS", value: "nowhere"},
		{name: "CARILLON_RAS_NETWORK", value: "moon"},
		{name: "CARILLON_RAS_WEBHOOKS", value: "nowhere"},
		{name: "CARILLON_RAS_WEBHOOK_SECRET", value: "short"},
		{name: "CARILLON_RAS_ALERTMANAGERS", value: "nowhere"},
		{name: "CARILLON_RAS_MIN_POLL_INTERVAL", value: "often"},
		{name: "CARILLON_GPU", value: "many"},
		{name: "CARILLON_SIGNALS", value: "x"},
		{name: "CARILLON_ALGO", value: "magic"},
		{name: "CARILLON_SIMD", value: "mmx"},
		{name: "CARILLON_HOSTID", value: strings.Repeat("x", 65)},
		{name: "NCCL_HOSTID", value: strings.Repeat("x", 65)},
		{name: "CARILLON_COMM_BLOCKING", value: "x"},
		{name: "NCCL_SOCKET_IFNAME", value: "^"},
		{name: "CARILLON_KEEPALIVE", value: "1ms"},
		{name: "CARILLON_LOG", value: "loud"},
		{name: "NCCL_DEBUG", value: "loud"},
		{name: "NCCL_DEBUG_SUBSYS", value: "loud"},
		{name: "CARILLON_LOG_FORMAT", value: "verse"},
	} {
		env := map[string]string{"CARILLON_TAPE_DIR": t.TempDir(), tc.name: tc.value}
		for name, value := range tc.with {
			env[name] = value
		}
		n, err := node.Start(t.Context(), environ(env))
		if err == nil {
			_ = n.Stop(t.Context())
			t.Errorf("%s=%q was obeyed", tc.name, tc.value)
			continue
		}
		if text := err.Error(); !strings.Contains(text, tc.name) || strings.Contains(text, "Config") {
			t.Errorf("%s=%q: want an error that names the variable, got %v", tc.name, tc.value, err)
		}
	}
}

package node_test

import (
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/runtime/node"
)

// TestProblemsNameTheirVariable: an error about a variable's value names the variable, not the field of Config behind
// it.
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
		{name: "CARILLON_TAPE_DIR", value: "/dev/null", with: map[string]string{"CARILLON_TAPE": "required"}},
		{name: "CARILLON_TAPE_SIZE", value: "large"},
		{name: "CARILLON_TAPE_SIZE", value: "1kB"},
		{name: "CARILLON_TAPE_KEEP", value: "all"},
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
		{name: "CARILLON_RAS_ADDR", value: "nonsense"}, // even if there are no others
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
		{name: "CARILLON_WIRE", value: "tls"},
		{name: "CARILLON_WIRE", value: "encrypt", with: two}, // without a secret
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
			t.Errorf("%s=%q was applied", tc.name, tc.value)
			continue
		}
		if text := err.Error(); !strings.Contains(text, tc.name) || strings.Contains(text, "Config") {
			t.Errorf("%s=%q: want an error that names the variable, got %v", tc.name, tc.value, err)
		}
	}
}

// TestIgnoredIsSaid: a setting of RAS without effect is reported once, with the reason but without its value.
func TestIgnoredIsSaid(t *testing.T) {
	all := map[string]string{
		"CARILLON_RAS_WEBHOOKS":      "http://user:hidden@127.0.0.1:1/",
		"CARILLON_RAS_ALERTMANAGERS": "http://user:hidden@127.0.0.1:1/",
		"CARILLON_RAS_ADDR":          "127.0.0.1:0", "CARILLON_RAS_SEEDS": "127.0.0.1:1",
	}
	const names = "CARILLON_RAS_WEBHOOKS, CARILLON_RAS_ALERTMANAGERS, CARILLON_RAS_ADDR, CARILLON_RAS_SEEDS"
	for _, tc := range []struct {
		name   string
		env    map[string]string
		though map[string]string
		want   string // none if empty
	}{
		{
			"off", all,
			map[string]string{"CARILLON_RAS": "off"},
			"ignored: " + names + ", since RAS is off (CARILLON_RAS)",
		},
		{
			"without a tape", all,
			map[string]string{"CARILLON_TAPE": "off"},
			"ignored: " + names + ", since there is no tape",
		},
		{
			"alone", all, nil,
			"ignored: CARILLON_RAS_ADDR, CARILLON_RAS_SEEDS, since the job has one process, which has no " +
				"others to meet",
		},
		{"alone, and applied", map[string]string{"CARILLON_RAS_WEBHOOKS": all["CARILLON_RAS_WEBHOOKS"]}, nil, ""},
		{"off, and nothing else", nil, map[string]string{"CARILLON_RAS": "off"}, ""},
		{"with others", all, map[string]string{
			"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7", "CARILLON_RAS_SEEDS": "",
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := map[string]string{}
			maps.Copy(env, tc.env)
			maps.Copy(env, tc.though)
			var log safeBuffer
			start(t, environ(env), node.WithHealth(""), node.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
			var said []string
			for _, line := range log.lines() {
				if strings.Contains(line, "ignored") {
					said = append(said, line)
				}
				if strings.Contains(line, "hidden") {
					t.Errorf("a password is logged: %s", line)
				}
			}
			if tc.want == "" && len(said) > 0 {
				t.Errorf("logged %q, want nothing", said)
			}
			if tc.want != "" && (len(said) != 1 || !strings.Contains(said[0], "level=WARN") ||
				!strings.Contains(said[0], tc.want)) {
				t.Errorf("logged %q, want a warning, once: %s", said, tc.want)
			}
		})
	}
}

// TestVariables: the variables that the sources name are exactly the known ones, and the page explains them.
func TestVariables(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range node.Known() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("the page doesn't explain %s", name)
		}
	}
	named := map[string]bool{}
	literal := regexp.MustCompile(`"(CARILLON_[A-Z_]*[A-Z])"`)
	for _, dir := range []string{"cmd", "health", "lifecycle", "ras", "runtime", "telemetry"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range literal.FindAllStringSubmatch(string(source), -1) {
				named[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := slices.Sorted(maps.Keys(named)); !slices.Equal(got, node.Known()) {
		t.Errorf("the sources name %q,\nand the variables are %q", got, node.Known())
	}
}

// TestUnknownVariablesAreSaid: a warning names a misspelt variable and the one that may be meant, but not its value.
func TestUnknownVariablesAreSaid(t *testing.T) {
	environ := []string{
		"CARILLON_STAL_THRESHOLD=1s", "CARILLON_TAPE=off", "CARILLON_=x", "CARILLON_EMPTY=", "CARILLONX=1",
		"PATH=/bin", "CARILLON_RAS_WEBHOOK=http://user:hidden@x/",
		"CARILLON_WHATEVER_ELSE=1",
		"CARILLON_SERVICE_HOST=10.0.0.1", "CARILLON_SERVICE_PORT_HTTP=80", "CARILLON_PORT=tcp://10.0.0.1:80",
		"CARILLON_UI_PORT_80_TCP_ADDR=10.0.0.1",
	}
	want := []string{
		"ignored: CARILLON_, which is none of Carillon's variables",
		"ignored: CARILLON_RAS_WEBHOOK, which is none of Carillon's variables; is CARILLON_RAS_WEBHOOKS meant?",
		"ignored: CARILLON_STAL_THRESHOLD, which is none of Carillon's variables; is CARILLON_STALL_THRESHOLD meant?",
		"ignored: CARILLON_WHATEVER_ELSE, which is none of Carillon's variables",
	}
	if got := node.Unknown(environ); !slices.Equal(got, want) {
		t.Errorf("said %q,\nwant %q", got, want)
	}
	t.Setenv("CARILLON_STAL_THRESHOLD", "1s")
	var log safeBuffer
	start(t, node.FromEnv(), node.WithHealth(""), node.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
	if said := log.String(); strings.Count(said, want[2]) != 1 ||
		!strings.Contains(said, "level=WARN") {
		t.Errorf("logged %s, want a warning, once: %s", said, want[2])
	}
}

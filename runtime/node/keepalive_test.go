package node_test

import (
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/node"
)

func TestKeepalive(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 10 * time.Second, "2s": 2 * time.Second, "1m": time.Minute,
		"1s": -1, "off": -1, "-5s": -1,
	} {
		cfg := node.Default()
		env := func(name string) string {
			if name == "CARILLON_KEEPALIVE" {
				return value
			}
			return ""
		}
		switch err := node.FromEnviron(env)(&cfg); {
		case (err != nil) != (want < 0):
			t.Errorf("%q: error %v", value, err)
		case err == nil && cfg.Fabric.Keepalive != want:
			t.Errorf("%q is %v, want %v", value, cfg.Fabric.Keepalive, want)
		}
	}
	cfg := node.Default()
	if cfg.Fabric.Keepalive = time.Second; cfg.Validate() == nil {
		t.Error("a second is too short, and was taken")
	}
}

package mesh

import (
	"bytes"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/process"
)

func TestValidateNamesTheField(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                     func(*Config) {},
		"Self.Host is \"\"":    func(c *Config) { c.Self.Host = "" },
		"Self.PID is 0":        func(c *Config) { c.Self.PID = 0 },
		"Self.Name is \"x\"":   func(c *Config) { c.Self.Name = "x" },
		"Self is rank -2 of 8": func(c *Config) { c.Self.Rank = -2 },
		"Self.Health has 129":  func(c *Config) { c.Self.Health = strings.Repeat("x", 129) },
		"Secret has 3 bytes":   func(c *Config) { c.Secret = c.Secret[:3] },
		"Bind is 0.0.0.0:7946, so Advertise must be set": func(c *Config) {
			c.Bind = netip.MustParseAddrPort("0.0.0.0:7946")
		},
	} {
		c := Config{Self: sampleMember, Secret: make([]byte, SecretSize), Tuning: LAN()}
		change(&c)
		got := ""
		if err := c.Validate(); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q, want %q", got, want)
		}
		if want != "" {
			if m, err := Start(c); err == nil {
				_ = m.Close()
				t.Errorf("it started where %s", want)
			}
		}
	}
}

func TestPresetsAreValid(t *testing.T) {
	for name, tuning := range map[string]Tuning{"OneMachine": OneMachine(), "LAN": LAN(), "WAN": WAN()} {
		for f, v := range reflect.ValueOf(tuning).Fields() {
			if v.Int() <= 0 {
				t.Errorf("%s: %s is %v", name, f.Name, v)
			}
		}
		if tuning.ProbeTimeout > tuning.ProbeInterval {
			t.Errorf("%s: a probe takes up to %v, each %v", name, tuning.ProbeTimeout, tuning.ProbeInterval)
		}
	}
}

// TestKeysDiffer: a job accepts nothing that another job sends, or a sender with another secret.
func TestKeysDiffer(t *testing.T) {
	var seals []*seal
	for _, secret := range [][]byte{make([]byte, SecretSize), bytes.Repeat([]byte{1}, SecretSize)} {
		for _, job := range []string{"a", "b"} {
			s, err := newSeal(secret, job)
			if err != nil {
				t.Fatal(err)
			}
			seals = append(seals, s)
		}
	}
	for i, from := range seals {
		for j, to := range seals {
			if _, err := to.openPacket(from.packet([]byte("x"))); (err == nil) != (i == j) {
				t.Errorf("job %d hears job %d: %v", j, i, err)
			}
			if (from.tag == to.tag) != (i == j) {
				t.Errorf("jobs %d and %d have the tags %x and %x", i, j, from.tag, to.tag)
			}
		}
	}
}

// memberlist logs through slog, at debug, and the secret is not in it.
func TestLogging(t *testing.T) {
	var out bytes.Buffer
	for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		out.Reset()
		c := Config{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))}
		c.memberlistConfig(&delegate{}).Logger.Printf("[ERR] memberlist: %d", 1)
		got := out.String()
		if (got != "") != want {
			t.Errorf("at %v it logged %q", level, got)
		}
		if want && (!strings.Contains(got, "level=DEBUG") || !strings.Contains(got, `msg="[ERR] memberlist: 1"`)) {
			t.Errorf("logged %q", got)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Alive.String() + Left.String():              "aliveleft",
		CauseTold.String() + CauseReplaced.String(): "toldreplaced",
		sampleMember.String():                       "rank 3 (node-a-4711)",
		(Event{
			Status: Status{
				Member: sampleMember, State: Dead, Cause: CauseExit, By: "x-1",
				Exit: process.Exit{Known: true, Signal: 9},
			},
		}).String(): "rank 3 (node-a-4711) dead: exit, killed, seen by x-1",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

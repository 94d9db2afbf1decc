package job

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

func TestResultTellsWhoFailedAndHow(t *testing.T) {
	ok := Outcome{After: time.Second}
	one := Outcome{Exit: process.Exit{Code: 1}, After: 3 * time.Second}
	killed := Outcome{Exit: process.Exit{Signal: unix.SIGKILL}, PID: 123, After: 3200 * time.Millisecond}
	crashed := Outcome{
		Exit: process.Exit{Signal: unix.SIGSEGV, Core: true}, PID: 123, After: 150 * time.Second,
	}
	ended := Outcome{Exit: process.Exit{Signal: unix.SIGTERM}, Asked: unix.SIGTERM}
	for _, c := range []struct {
		outcomes []Outcome
		first    int
		gone     []int // the ranks that the job went on without
		lost     error
		code     int
		text     string
	}{
		{outcomes: []Outcome{ok}, first: -1, code: 0, text: "rank 0 ended well after 5s"},
		{outcomes: []Outcome{ok, ok, ok, ok}, first: -1, code: 0, text: "ranks 0 to 3 ended well after 5s"},
		{
			outcomes: []Outcome{ok, ok}, first: -1, lost: unix.EPIPE, code: 141,
			text: "ranks 0 and 1 ended well after 5s",
		},
		{
			outcomes: []Outcome{ended}, first: 0, lost: unix.EPIPE, code: 141,
			text: "rank 0 (pid 0) was ended by the launcher's SIGTERM after 0s",
		},
		{outcomes: []Outcome{one}, first: 0, lost: unix.EPIPE, code: 1, text: "rank 0 (pid 0) exited with 1 after 3s"},
		{outcomes: []Outcome{one}, first: 0, code: 1, text: "rank 0 (pid 0) exited with 1 after 3s"},
		{
			outcomes: []Outcome{one, one, killed, one}, first: 2, code: 137,
			text: "rank 2 (pid 123) was killed by SIGKILL after 3.2s; ranks 0, 1 and 3 exited with 1",
		},
		{
			outcomes: []Outcome{crashed, ended, ended, ended, one, ok}, first: 0, code: 139,
			text: "rank 0 (pid 123) was killed by SIGSEGV (core dumped) after 2m30s; " +
				"ranks 1 to 3 were ended by the launcher's SIGTERM; rank 4 exited with 1; rank 5 exited with 0",
		},
		{
			outcomes: []Outcome{ok, one, killed, ok}, first: -1, gone: []int{2, 1}, code: 0,
			text: "ranks 0 and 3 ended well after 5s; rank 2 (pid 123) was lost: killed by SIGKILL after 3.2s; " +
				"rank 1 (pid 0) was lost: exited with 1 after 3s",
		},
		{
			outcomes: []Outcome{killed, one}, first: 1, gone: []int{0}, code: 1,
			text: "rank 1 (pid 0) exited with 1 after 3s; rank 0 was killed by SIGKILL",
		},
		{
			outcomes: []Outcome{ended, ended}, first: 0, code: 143,
			text: "ranks 0 and 1 were ended by the launcher's SIGTERM after 5s",
		},
	} {
		r := Result{Took: 5 * time.Second, OutputLost: c.lost}
		for i, o := range c.outcomes {
			o.Rank = i
			r.Outcomes = append(r.Outcomes, o)
		}
		for _, rank := range c.gone {
			r.Lost = append(r.Lost, &r.Outcomes[rank])
		}
		if c.first >= 0 {
			r.First = &r.Outcomes[c.first]
		}
		if got := r.String(); got != c.text {
			t.Errorf("text\n%s, want\n%s", got, c.text)
		}
		if got := r.ExitCode(); got != c.code {
			t.Errorf("%s: exit code %d, want %d", c.text, got, c.code)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	good := Config{Program: []string{"x"}, Ranks: 4}
	hosts := Config{Program: []string{"x"}, Ranks: 4, Hosts: 2, Host: 1, MasterAddr: "a", MasterPort: 1, Secret: secret}
	for _, c := range []Config{good, hosts} {
		if err := c.validate(); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	for _, c := range []struct {
		from   Config
		change func(*Config)
		field  string
	}{
		{good, func(c *Config) { c.Program = nil }, "the program"},
		{good, func(c *Config) { c.Ranks = 0 }, "-n"},
		{good, func(c *Config) { c.Ranks = maxRanks + 1 }, "-n"},
		{good, func(c *Config) { c.Nodes = 5 }, "--simulate-nodes"},
		{good, func(c *Config) { c.Nodes = -1 }, "--simulate-nodes"},
		{good, func(c *Config) { c.Hosts = -1 }, "--nnodes"},
		{good, func(c *Config) { c.Host = 1 }, "--node-rank"},
		{good, func(c *Config) { c.MasterPort = 65536 }, "--master-port"},
		{good, func(c *Config) { c.MasterAddr = "tcp://x" }, "--master-addr"},
		{good, func(c *Config) { c.Name = "../up" }, "--job"},
		{good, func(c *Config) { c.Linger = -1 }, "--linger"},
		{good, func(c *Config) { c.Grace = -1 }, "--grace"},
		{good, func(c *Config) { c.MinRanks = -1 }, "--min-ranks"},
		{good, func(c *Config) { c.MinRanks = 5 }, "--min-ranks"},
		{hosts, func(c *Config) { c.Host = 2 }, "--node-rank"},
		{hosts, func(c *Config) { c.Nodes = 2 }, "--simulate-nodes"},
		{hosts, func(c *Config) { c.MasterAddr = "" }, "--master-addr"},
		{hosts, func(c *Config) { c.MasterPort = 0 }, "--master-port"},
		{hosts, func(c *Config) { c.Secret = "" }, "the job's secret"},
	} {
		c.change(&c.from)
		var wrong *ConfigError
		if err := c.from.validate(); !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("want a complaint about %s: %v", c.field, err)
		}
	}
}

func TestCauseIsTheFirstFailure(t *testing.T) {
	well, exited, killed := process.Exit{}, process.Exit{Code: 1}, process.Exit{Signal: unix.SIGKILL}
	for _, c := range []struct {
		batch []process.Exit
		want  int // in the batch; -1 is none
	}{
		{[]process.Exit{well, well}, -1},
		{[]process.Exit{well, exited, exited}, 1},
		{[]process.Exit{exited, killed, exited}, 1},
		{[]process.Exit{killed, killed}, 0},
	} {
		var batch []death
		for _, s := range c.batch {
			batch = append(batch, death{exit: s})
		}
		var want *death
		if c.want >= 0 {
			want = &batch[c.want]
		}
		if got := cause(batch); got != want {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

package node

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus/webhook"
	"github.com/carillon-rt/carillon/ras/ncclras"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// FieldError is a field of Config with a value that is not allowed.
type FieldError struct {
	Field   string // such as "RAS.Join"
	Value   any    // nil: not to be shown
	Allowed string
}

// Error is Text with the field's name in Go.
func (e *FieldError) Error() string { return e.Text("node.Config." + e.Field) }

// Text says what is wrong, with another name of the field, such as that of a command's flag.
func (e *FieldError) Text(name string) string {
	if e.Value != nil {
		name += fmt.Sprintf(" is %v", e.Value)
	}
	return name + ": " + e.Allowed
}

// problems are the problems of a configuration.
type problems []*FieldError

func (p *problems) add(field string, value any, format string, args ...any) {
	*p = append(*p, &FieldError{field, value, fmt.Sprintf(format, args...)})
}

// Validate joins a *FieldError for every field that has a value that is not allowed.
func (c *Config) Validate() error {
	var errs []error
	for _, p := range c.problems() {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

func (c *Config) problems() problems {
	var p problems
	c.checkNetwork(&p)
	c.checkTimes(&p)
	c.checkTape(&p)
	c.checkRAS(&p)
	c.checkSecrets(&p)
	return p
}

// checkNetwork checks the rank's place among the others, and how it reaches them.
func (c *Config) checkNetwork(p *problems) {
	if w := &c.World; w.Size < 1 {
		p.add("World.Size", w.Size, "a job has at least one rank")
	} else if w.Rank < 0 || w.Rank >= w.Size {
		p.add("World.Rank", w.Rank, "with %d ranks it must be 0 to %d", w.Size, w.Size-1)
	}
	f := &c.Fabric
	if f.Wire != door.Plain && c.World.Size > 1 && len(c.World.Secret) == 0 {
		p.add("Fabric.Wire", f.Wire, "its keys follow from the job's secret, and there is none; set "+
			"CARILLON_JOB_SECRET or CARILLON_JOB_SECRET_FILE to the same random text on all ranks "+
			"(openssl rand -hex 32 makes one)")
	}
	if err := (fabric.Config{HostID: f.HostID}).Validate(); err != nil {
		p.add("Fabric.HostID", nil, "%v", err)
	}
	if err := (fabric.Config{SocketIfname: f.SocketIfname}).Validate(); err != nil {
		p.add("Fabric.SocketIfname", f.SocketIfname, "%v", err)
	}
	if f.Keepalive < fabric.MinKeepalive {
		p.add("Fabric.Keepalive", f.Keepalive, "want a duration of at least %v, such as 30s", fabric.MinKeepalive)
	}
	p.checkAddress("Health", c.Health, "127.0.0.1:0 (any free port), or off for none")
}

// checkAddress checks that a field is empty or has a port. A name is looked up when it is needed.
func (p *problems) checkAddress(field, value, example string) {
	if _, _, err := net.SplitHostPort(value); value != "" && err != nil {
		p.add(field, value, "want host:port, such as %s", example)
	}
}

func (c *Config) checkTimes(p *problems) {
	limit := func(field string, d time.Duration) {
		if d != 0 && (d < model.MinLimit || d > model.MaxLimit) {
			p.add(field, d, "want a duration from %v to %v, or off (in Go, 0)", model.MinLimit, model.MaxLimit)
		}
	}
	limit("SlowThreshold", c.SlowThreshold)
	limit("StallThreshold", c.StallThreshold)
	limit("MinPollInterval", c.MinPollInterval)
}

func (c *Config) checkTape(p *problems) {
	if !slices.Contains([]Tape{TapeOn, TapeOff, TapeRequired}, c.Tape) {
		p.add("Tape", c.Tape, "want on, off or required")
	}
	if err := tape.CheckJob(c.World.Job); err != nil && c.Tape != TapeOff {
		p.add("World.Job", nil, "%v", err)
	}
	if c.TapeDevices < 0 || c.TapeDevices > tape.MaxDevices {
		p.add("TapeDevices", c.TapeDevices, "want a number from 0 to %d", tape.MaxDevices)
	}
	if c.TapeSize != 0 && c.TapeSize < tape.MinSize {
		p.add("TapeSize", int64(c.TapeSize), "want a size such as 1MiB, of at least %s", humanize.IBytes(tape.MinSize))
	}
	if _, _, err := tape.ParseKeep(c.TapeKeep, false); err != nil {
		p.add("TapeKeep", c.TapeKeep, "want a number of jobs from 0 on, or off")
	}
}

func (c *Config) checkRAS(p *problems) {
	p.checkAddress("RAS.Addr", c.RAS.Addr, "10.0.0.7:0 (any free port)")
	for _, issue := range c.RAS.AcceptNCCLBugs {
		if known := ncclras.Issues(); !slices.Contains(known, issue) {
			p.add("RAS.AcceptNCCLBugs", issue, "the NCCL issues that keep an agent from querying NCCL are %s",
				words.Numbers(known))
		}
	}
	for _, at := range c.RAS.Join {
		if _, _, err := splitMachine(at); err != nil {
			p.add("RAS.Join", strconv.Quote(at), "want host or host:port, with commas between them")
		}
	}
	p.checkURLs("RAS.Webhooks", c.RAS.Webhooks)
	p.checkURLs("RAS.Alertmanagers", c.RAS.Alertmanagers)
}

// checkURLs checks addresses to post to. None is shown: it may hold a password.
func (p *problems) checkURLs(field string, list []string) {
	for _, text := range list {
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			p.add(field, nil, "want URLs such as https://alerts.example.org/hook, with commas between them")
		}
	}
}

func (c *Config) checkSecrets(p *problems) {
	if _, err := readSecrets(c.HealthTokenFile); err != nil {
		p.add("HealthTokenFile", c.HealthTokenFile, "%v", err)
	}
	more, err := readSecrets(c.RAS.WebhookSecretFile)
	if err != nil {
		p.add("RAS.WebhookSecretFile", c.RAS.WebhookSecretFile, "%v", err)
	}
	long := func(field string, secrets []string) {
		for _, secret := range secrets {
			if len(secret) < webhook.MinSecret {
				p.add(field, nil, "a secret has %d bytes, want at least %d", len(secret), webhook.MinSecret)
			}
		}
	}
	long("RAS.WebhookSecrets", c.RAS.WebhookSecrets)
	long("RAS.WebhookSecretFile", more)
}

// readSecrets reads the secrets of a file, one a line; none if path is empty.
func readSecrets(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if all := strings.Fields(string(text)); err != nil || len(all) > 0 {
		return all, err
	}
	return nil, errors.New("want one a line, and there is none")
}

// Package endpoint is a client of health endpoints: for a snapshot of a job, and for the stream of its events.
package endpoint

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tmaxmax/go-sse"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// Config is a Client's identity, and the servers that it trusts.
type Config struct {
	Token string // sent as a bearer token; empty: none

	CACert    string // a PEM file of the authorities that sign servers' certificates; empty: the system's
	Cert, Key string // the client's own certificate, PEM files

	// Timeout is how long a snapshot, and the beginning of a stream, may take. 0 means DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is Config.Timeout's default.
const DefaultTimeout = 3 * time.Second

// Bounds of answers, in bytes.
const (
	maxSnapshot = 64 << 20
	maxEvent    = 1 << 20
	maxError    = 1 << 10
)

// Client asks endpoints. It is safe for concurrent use.
type Client struct {
	cfg     Config
	http    *http.Client
	silence time.Duration // a stream is broken after this time without even a heartbeat
}

// agent is the User-Agent, different in each process: servers limit the rate of each.
var agent = fmt.Sprintf("carillon (pid %d)", os.Getpid())

// New makes a Client. An error names the flag and the file.
func New(cfg Config) (*Client, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CACert != "" {
		text, err := os.ReadFile(cfg.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--cacert: %s has no certificate in PEM", cfg.CACert)
		}
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("--cert and --key are given together")
	}
	if cfg.Cert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert, --key: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return &Client{cfg: cfg, silence: 45 * time.Second, http: &http.Client{
		Transport: t,
		// a redirect must not get the token
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Target is an endpoint.
type Target struct {
	URL     string // "http://127.0.0.1:4711"
	Trusted bool   // the token may be sent to it
	Of      string // the process that it tells of: "rank 2 (node1-4711)"; empty if that isn't known
}

// Of names a process for Target.Of.
func Of(rank int, host string, pid int) string {
	p := verdict.Rank{Job: rank, Comm: -1, Host: host, PID: pid}
	if rank < 0 {
		return p.String()
	}
	return fmt.Sprintf("%s (%s)", p, p.Process())
}

// String names the endpoint for a person.
func (t Target) String() string {
	if t.Of == "" {
		return t.URL
	}
	return fmt.Sprintf("%s at %s", t.Of, t.URL)
}

// ParseURL parses an endpoint that a user names: a URL, or host:port.
func ParseURL(text string) (Target, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" ||
		strings.Trim(u.Path, "/") != "" {
		return Target{}, fmt.Errorf("--url is %.200q, allowed is http://host:port or https://host:port", text)
	}
	return Target{URL: u.Scheme + "://" + u.Host, Trusted: true}, nil
}

// Snapshot asks an endpoint for a snapshot.
func (c *Client) Snapshot(ctx context.Context, to Target) (*health.Snapshot, error) {
	asked, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.get(asked, to, "/api/v1/ras", nil)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("%s didn't answer within %v: its process may be stopped, or its host can't be reached",
			to, c.cfg.Timeout)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	s := &health.Snapshot{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSnapshot)).Decode(s); err != nil {
		return nil, fmt.Errorf("%s answered with something other than a snapshot: %w", to, err)
	}
	return s, nil
}

// atOnce bounds the requests in flight. A request without an answer takes its whole timeout.
const atOnce = 64

// All asks all targets for snapshots, several at a time. The errors are of those that didn't answer, in their order.
func (c *Client) All(ctx context.Context, targets []Target) (map[Target]*health.Snapshot, []error) {
	snapshots, errs := make([]*health.Snapshot, len(targets)), make([]error, len(targets))
	var asking errgroup.Group
	asking.SetLimit(atOnce)
	for i, to := range targets {
		asking.Go(func() error {
			snapshots[i], errs[i] = c.Snapshot(ctx, to)
			return nil
		})
	}
	_ = asking.Wait() // errs has the errors
	answers := map[Target]*health.Snapshot{}
	for i, s := range snapshots {
		if s != nil {
			answers[targets[i]] = s
		}
	}
	return answers, slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// All is an id that comes before those of all remembered events.
const All = "0"

// Stream calls opened once the endpoint has accepted the request, and then each for every event after the one with id
// after. It returns the error of ctx or of each, or io.EOF when the endpoint ends the stream. Notices of the bus about
// missing events have no ID.
func (c *Client) Stream(ctx context.Context, to Target, after string, opened func(),
	each func(*bus.Event) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.cfg.Timeout, func() { cancel(fmt.Errorf("%s is silent", to)) })
	defer silence.Stop()
	resp, err := c.get(ctx, to, health.EventsPath, http.Header{
		"Last-Event-Id": {after}, "Accept": {"text/event-stream"},
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf("%s answered with %.100q in place of events", to, kind)
	}
	opened()
	silence.Reset(c.silence)
	alive := reader(func(b []byte) (int, error) {
		n, err := resp.Body.Read(b)
		silence.Reset(c.silence)
		return n, err
	})
	for frame, err := range sse.Read(alive, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		if err != nil {
			return errors.Join(context.Cause(ctx), fmt.Errorf("the events of %s: %w", to, err))
		}
		if frame.Data == "" {
			continue
		}
		var ev bus.Event
		if err := json.Unmarshal([]byte(frame.Data), &ev); err != nil {
			return fmt.Errorf("%s sent something other than an event: %w", to, err)
		}
		if err := each(&ev); err != nil {
			return err
		}
	}
	return io.EOF
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// get sends a request. An answer other than 200 is an error that tells what to do.
func (c *Client) get(ctx context.Context, to Target, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("User-Agent", agent)
	if c.cfg.Token != "" && to.Trusted {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return nil, fmt.Errorf("%s can't be reached: %w", to, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	said := words.Line(strings.TrimSpace(string(text)))
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		what := "wants a token"
		if req.Header.Get("Authorization") != "" {
			what = "wants another token"
		}
		return nil, fmt.Errorf("%s %s (--token-file, CARILLON_HEALTH_TOKEN) or a client certificate "+
			"(--cert, --key): %s",
			to, what, said)
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s has no %s: it is no Carillon process, or RAS is off there (CARILLON_RAS)",
			to, path)
	default:
		return nil, fmt.Errorf("%s answered %s: %s", to, words.Line(resp.Status), said)
	}
}

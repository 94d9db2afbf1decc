// Package push sends bodies over HTTP to a receiver that may be slow, broken or hostile: what it answers is bounded,
// redirects lead to no other host, and errors don't repeat addresses, which often are secrets.
package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxAnswer is how much of an answer is read, so that the connection can be used again.
	maxAnswer = 16 << 10
	// timeout is how long a request and its answer may take.
	timeout = 10 * time.Second
)

// Client sends to one receiver.
type Client struct {
	url  *url.URL
	http http.Client
}

// New makes a client for an address. The error doesn't repeat it. transport is nil for one of the client's own.
func New(address string, transport http.RoundTripper) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("no address: allowed is http://HOST/PATH or https://HOST/PATH")
	}
	if transport == nil {
		transport = &http.Transport{ // not http.DefaultTransport, which the program may have replaced by something else
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxAnswer,
		}
	}
	return &Client{u, http.Client{Transport: transport, Timeout: timeout, CheckRedirect: stay}}, nil
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// stay follows a redirect only to the same host, the same way, with the same method. Credentials go nowhere else.
func stay(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || req.Method != first.Method || req.URL.Host != first.URL.Host ||
		req.URL.Scheme != first.URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// StatusError is an answer that is no success.
type StatusError struct {
	Host   string
	Status int
	// RetryAfter is how long the receiver wants to be left alone; 0 if it doesn't say.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answered %d %s", e.Host, e.Status, http.StatusText(e.Status))
	if e.Status/100 == 3 {
		text += "; a redirect is followed only with 307 or 308, to the same host and scheme"
	}
	return text
}

// Temporary tells whether the same request may succeed later.
func Temporary(err error) bool {
	status, answered := errors.AsType[*StatusError](err)
	if !answered {
		return true
	}
	again := []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}
	return status.Status >= 500 || slices.Contains(again, status.Status)
}

// Post sends a body. The error is a *StatusError unless no answer came; it has only the host of the address.
func (c *Client) Post(ctx context.Context, header http.Header, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("a request to %s: %w", c.url.Host, withoutURL(err))
	}
	req.Header = header
	answer, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s did not answer: %w", c.url.Host, withoutURL(err))
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // only so that the connection can be used again
	if answer.StatusCode/100 == 2 {
		return nil
	}
	return &StatusError{
		Host: c.url.Host, Status: answer.StatusCode,
		RetryAfter: RetryAfter(answer.Header.Get("Retry-After"), time.Now()),
	}
}

func withoutURL(err error) error {
	if with, ok := errors.AsType[*url.Error](err); ok {
		return with.Err
	}
	return err
}

// RetryAfter reads the header of that name, seconds or a date; 0 if it says nothing. At most an hour.
func RetryAfter(value string, now time.Time) time.Duration {
	const most = time.Hour
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(most/time.Second))) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), most)
}

package push_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/bus/internal/push"
)

var now = time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"": 0, "17": 17 * time.Second, " 17 ": 17 * time.Second, "-1": 0, "1.5": 0, "soon": 0,
		"3601": time.Hour, "18446744073709551615": time.Hour, "99999999999999999999": 0,
		"Tue, 04 Mar 2025 05:06:47 GMT": 40 * time.Second, "Tue, 04 Mar 2025 05:00:00 GMT": 0,
		"Tue, 04 Mar 2125 05:00:00 GMT": time.Hour,
	} {
		if got := push.RetryAfter(in, now); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func TestNew(t *testing.T) {
	for in, ok := range map[string]bool{
		"https://host/hidden": true, "http://host:1": true, "": false, "host:1/hidden": false,
		"ftp://host/hidden": false, "https:///hidden": false, "https://ho st/hidden": false,
	} {
		if _, err := push.New(in, nil); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// FuzzRetryAfter: the time that a receiver asks for is neither in the past nor longer than an hour.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "17", "-9223372036854775808", "Mon, 01 Jan 0001 00:00:00 GMT",
		"Fri, 31 Dec 9999 23:59:59 GMT",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if got := push.RetryAfter(value, now); got < 0 || got > time.Hour {
			t.Errorf("%q: %v", value, got)
		}
	})
}

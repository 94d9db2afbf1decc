package node

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/ras/mesh"
)

// TestUnmet has many communicators name the same contacts at once: each contact is met once, and again when it is named
// later.
func TestUnmet(t *testing.T) {
	var u pendingContacts
	u.add([]string{"", "nonsense", "host:1"})
	if addr, ok := u.next(); ok {
		t.Errorf("what is no contact is to be met: %v", addr)
	}
	contacts := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	var naming, meeting sync.WaitGroup
	for range 100 {
		naming.Go(func() { u.add(contacts) })
	}
	naming.Wait()
	met := make(chan netip.AddrPort, 100)
	for range 10 {
		meeting.Go(func() {
			for addr, ok := u.next(); ok; addr, ok = u.next() {
				met <- addr
			}
		})
	}
	meeting.Wait()
	close(met)
	times := map[netip.AddrPort]int{}
	for addr := range met {
		times[addr]++
	}
	if len(times) != len(contacts) || times[netip.MustParseAddrPort(contacts[0])] != 1 {
		t.Errorf("met are %v, want each once", times)
	}
	u.add(contacts[:1])
	if _, ok := u.next(); !ok {
		t.Error("nobody meets one that is named later")
	}
}

// TestReachable: other hosts get the URL of an endpoint only if they can reach it.
func TestReachable(t *testing.T) {
	fabric := netip.MustParseAddr("10.0.0.7")
	for name, tc := range map[string]struct {
		endpoint        string
		bind, advertise netip.Addr
		want            string
	}{
		"loopback":       {"http://127.0.0.1:9400/", fabric, netip.Addr{}, ""},
		"loopback, IPv6": {"http://[::1]:9400/", fabric, netip.Addr{}, ""},
		"one address":    {"http://10.0.0.8:9400/", fabric, netip.Addr{}, "http://10.0.0.8:9400"},
		"one address, TLS": {
			"https://[2001:db8::1]:9400/", fabric,
			netip.Addr{},
			"https://[2001:db8::1]:9400",
		},
		"all": {"http://[::]:9400/", fabric, netip.Addr{}, "http://10.0.0.7:9400"},
		"all, as the mesh": {
			"http://0.0.0.0:9400/", netip.IPv4Unspecified(), fabric,
			"http://10.0.0.7:9400",
		},
		"all, TLS":                          {"https://[::]:9400/", fabric, netip.Addr{}, "https://node-a:9400"},
		"all, and the job is on this host":  {"http://[::]:9400/", netip.MustParseAddr("127.0.0.1"), netip.Addr{}, ""},
		"all, and the mesh takes a default": {"https://[::]:9400/", netip.Addr{}, netip.Addr{}, ""},
		"none":                              {"", fabric, netip.Addr{}, ""},
	} {
		r := &JobRAS{self: mesh.Member{Host: "node-a"}}
		r.config.Bind, r.config.Advertise = netip.AddrPortFrom(tc.bind, 0), tc.advertise
		if got := r.reachable(tc.endpoint); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	long := &JobRAS{self: mesh.Member{Host: strings.Repeat("x", mesh.MaxHealth)}}
	long.config.Bind = netip.AddrPortFrom(fabric, 0)
	if got := long.reachable("https://[::]:9400/"); got != "" {
		t.Errorf("%q, which no member can carry", got)
	}
}

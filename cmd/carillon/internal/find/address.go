package find

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// Loopback tells whether a URL leads to this host's loopback.
func Loopback(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return strings.EqualFold(u.Hostname(), "localhost") || err == nil && addr.IsLoopback()
}

// Reachable is the URL with an address to which one can connect, where it has the one to which a server is bound that
// listens on all: over TLS, this host's name, which its certificate has.
func Reachable(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || !addr.IsUnspecified() {
		return text
	}
	host := "127.0.0.1"
	if u.Scheme == "https" {
		if host, err = os.Hostname(); err != nil {
			return text
		}
	}
	u.Host = net.JoinHostPort(host, u.Port())
	return u.String()
}

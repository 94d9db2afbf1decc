package health

import (
	"net/http"
	"net/netip"
	"strings"
)

// client is the client that a query is counted for. Clients are the same if all of it is.
type client struct {
	addr     netip.Addr // of an IPv6 client its network of 64 bits, of which it can have any address
	identity identity
}

// identity is how a client has proved its identity: with which token or certificate. The zero identity is nobody.
type identity [16]byte

// clientOf is the client's address: the one that the connection comes from, or what a trusted proxy says.
func clientOf(r *http.Request, trusted []netip.Prefix) client {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // not an address in tests only; then all are one
	return client{addr: network(forwarded(peer.Addr(), r.Header["X-Forwarded-For"], trusted))}
}

// maxForwards bounds the proxies that a request comes through.
const maxForwards = 32

// forwarded is the client's address. Each proxy appends to X-Forwarded-For the address it got the request from, so the
// list is read from its end, for as long as the one who wrote an entry is trusted. What can't be read wasn't written by
// a proxy: the client is the last one that is known then.
func forwarded(peer netip.Addr, fields []string, trusted []netip.Prefix) netip.Addr {
	client := peer.Unmap().WithZone("")
	for i, hops := len(fields)-1, 0; i >= 0; i-- {
		for rest, more := fields[i], true; more; hops++ {
			if hops == maxForwards || !within(client, trusted) {
				return client
			}
			entry := rest
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, entry = rest[:comma], rest[comma+1:]
			} else {
				more = false
			}
			addr, ok := parseForwarded(strings.TrimSpace(entry))
			if !ok {
				return client
			}
			client = addr
		}
	}
	return client
}

// parseForwarded reads an address as proxies write it: some with brackets, some with a port.
func parseForwarded(entry string) (netip.Addr, bool) {
	if len(entry) > 64 {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]"))
	if err != nil {
		var withPort netip.AddrPort
		if withPort, err = netip.ParseAddrPort(entry); err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), true
}

func within(addr netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// network is the address that a client can't change at will.
func network(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	p, err := addr.Prefix(64)
	if err != nil {
		return addr
	}
	return p.Addr()
}

package health

import (
	"net/netip"
	"slices"
	"strings"
)

// client identifies a client for the limit of its queries.
type client struct {
	addr     netip.Addr // for IPv6 the /64 network, in which a client can use any address
	identity identity
	program  uint64 // a hash of the User-Agent
}

// identity is a hash of a client's token or certificate; zero if it has none.
type identity [16]byte

// forwarded is the client's address. Each proxy appends to X-Forwarded-For the address that it got the request from, so
// the list is read from its end, while the proxy that wrote an entry is trusted and the entry is an address.
func forwarded(peer netip.Addr, fields []string, trusted []netip.Prefix) netip.Addr {
	client := peer.Unmap().WithZone("")
	if len(fields) == 0 {
		return client
	}
	entries := strings.Split(strings.Join(fields, ","), ",")
	for _, entry := range slices.Backward(entries) {
		isTrusted := slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(client) })
		addr, ok := parseForwarded(strings.TrimSpace(entry))
		if !isTrusted || !ok {
			break
		}
		client = addr
	}
	return client
}

// parseForwarded reads an address as proxies write it, which may have brackets or a port.
func parseForwarded(entry string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]"))
	if err != nil {
		withPort, portErr := netip.ParseAddrPort(entry)
		addr, err = withPort.Addr(), portErr
	}
	return addr.Unmap().WithZone(""), err == nil
}

// network is an IPv4 address, or the /64 network of an IPv6 address.
func network(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	return netip.PrefixFrom(addr.WithZone(""), 64).Masked().Addr()
}

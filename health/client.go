package health

import (
	"net/netip"
	"slices"
	"strings"
)

// client is the client that a query is counted for. Clients are the same if all of it is.
type client struct {
	addr     netip.Addr // of an IPv6 client its network of 64 bits, of which it can have any address
	identity identity
	program  uint64 // a hash of the User-Agent
}

// identity is how a client has proved its identity: with which token or certificate. The zero identity is nobody.
type identity [16]byte

// forwarded is the client's address. Each proxy appends to X-Forwarded-For the address that it got the request from, so
// the list is read from its end, as long as the proxy that wrote an entry is trusted. An entry that is no address ends
// the list, too.
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

// parseForwarded reads an address as proxies write it: some with brackets, some with a port.
func parseForwarded(entry string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]"))
	if err != nil {
		withPort, portErr := netip.ParseAddrPort(entry)
		addr, err = withPort.Addr(), portErr
	}
	return addr.Unmap().WithZone(""), err == nil
}

// network is the address that a client can't change at will.
func network(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return addr
	}
	return netip.PrefixFrom(addr.WithZone(""), 64).Masked().Addr()
}

package fabric

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// ifname is a parsed Config.SocketIfname.
type ifname struct {
	names   []string
	exact   bool
	exclude bool
}

func parseIfname(s string) (ifname, error) {
	var f ifname
	rest := s
	if strings.HasPrefix(rest, "^") {
		f.exclude, rest = true, rest[1:]
	}
	if strings.HasPrefix(rest, "=") {
		f.exact, rest = true, rest[1:]
	}
	for name := range strings.SplitSeq(rest, ",") {
		if name = strings.TrimSpace(name); name != "" {
			f.names = append(f.names, name)
		}
	}
	if s != "" && len(f.names) == 0 {
		return f, fmt.Errorf(`SocketIfname is %q; allowed are interface names such as "eth,ib", "=eth0" or "^docker,lo"`, s)
	}
	return f, nil
}

// admits says whether the interface may be used.
func (f ifname) admits(name string) bool {
	if len(f.names) == 0 {
		return true
	}
	named := slices.ContainsFunc(f.names, func(n string) bool {
		return n == name || !f.exact && strings.HasPrefix(name, n)
	})
	return named != f.exclude
}

// choice is one address of this host, and how good it is to be reached by.
type choice struct {
	addr  netip.Addr
	worse int
}

// listenAddress is the address of this host at which other hosts reach it best, as far as f admits it. IPv4 goes before
// IPv6, interfaces of the network before bridges of containers, and those before loopback.
func listenAddress(f ifname) (netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list network interfaces: %w", err)
	}
	var choices []choice
	var names []string
	for _, i := range interfaces {
		names = append(names, i.Name)
		if i.Flags&net.FlagUp == 0 || !f.admits(i.Name) {
			continue
		}
		worse := 0
		switch {
		case i.Flags&net.FlagLoopback != 0:
			worse = 4
		case strings.HasPrefix(i.Name, "docker"), strings.HasPrefix(i.Name, "virbr"), strings.HasPrefix(i.Name, "br-"):
			worse = 2
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || prefix.Addr().IsLinkLocalUnicast() {
				continue // a link-local address means nothing without its zone
			}
			addr := prefix.Addr().Unmap()
			if addr.Is4() {
				choices = append(choices, choice{addr, worse})
			} else {
				choices = append(choices, choice{addr, worse + 1})
			}
		}
	}
	if len(choices) == 0 {
		return netip.Addr{}, fmt.Errorf(
			"no network interface that is up, has an address and fits SocketIfname; there are: %s",
			strings.Join(names, ", "))
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return a.worse - b.worse })
	return choices[0].addr, nil
}

// Address is the address of this host at which the ranks of other hosts reach it, as far as SocketIfname admits it:
// where the fabric itself listens, and where a rendezvous server should.
func (f *Fabric) Address() (netip.Addr, error) {
	names, err := parseIfname(f.config.SocketIfname)
	if err != nil {
		return netip.Addr{}, err
	}
	return listenAddress(names)
}

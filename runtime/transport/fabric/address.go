package fabric

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

type ifname struct {
	names   []string
	exact   bool
	exclude bool
}

func parseIfname(s string) (ifname, error) {
	var f ifname
	rest, exclude := strings.CutPrefix(s, "^")
	rest, f.exact = strings.CutPrefix(rest, "=")
	f.exclude = exclude
	f.names = strings.FieldsFunc(rest, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if s != "" && len(f.names) == 0 {
		return f, fmt.Errorf(
			`SocketIfname is %q; allowed are interface names such as "eth,ib", "=eth0" or "^docker,lo"`, s,
		)
	}
	return f, nil
}

func (f ifname) admits(name string) bool {
	if len(f.names) == 0 {
		return true
	}
	named := slices.ContainsFunc(f.names, func(n string) bool {
		return n == name || !f.exact && strings.HasPrefix(name, n)
	})
	return named != f.exclude
}

// Address returns the address of this host, where the fabric listens: the best one for ranks of other hosts that
// SocketIfname admits. IPv4 is preferred to IPv6, network interfaces to container bridges, and these to loopback.
func (c Config) Address() (best netip.Addr, err error) {
	names, err := parseIfname(c.SocketIfname)
	if err != nil {
		return best, err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return best, fmt.Errorf("list network interfaces: %w", err)
	}
	least := math.MaxInt // badness of the best address so far
	var there []string
	for _, i := range interfaces {
		there = append(there, i.Name)
		if i.Flags&net.FlagUp == 0 || !names.admits(i.Name) {
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
			continue // the interface went away
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || prefix.Addr().IsLinkLocalUnicast() {
				continue // a link-local address means nothing without its zone
			}
			addr, worse := prefix.Addr().Unmap(), worse
			if !addr.Is4() {
				worse++
			}
			if worse < least {
				best, least = addr, worse
			}
		}
	}
	if !best.IsValid() {
		return best, fmt.Errorf("no network interface is up, has an address and fits NCCL_SOCKET_IFNAME=%q; "+
			"there are: %s", c.SocketIfname, strings.Join(there, ", "))
	}
	return best, nil
}

package fabric

import (
	"net/netip"

	"github.com/carillon-rt/carillon/runtime/transport"
)

// Address is the address of this host at which the ranks of other hosts reach it, as far as SocketIfname admits it:
// where the fabric itself listens, and where a rendezvous server should.
func (f *Fabric) Address() (netip.Addr, error) {
	names, err := parseIfname(f.config.SocketIfname)
	if err != nil {
		return netip.Addr{}, err
	}
	return listenAddress(names)
}

// Topology says where the ranks are, from their cards, before they are connected: all of it but Transport.
func (p *Port) Topology(rank int, cards [][]byte) (transport.Topology, error) {
	decoded, err := p.read(rank, cards)
	if err != nil {
		return transport.Topology{}, err
	}
	return topology(rank, decoded, nil), nil
}

package mesh

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate has memberlist's callbacks. memberlist holds its lock in some of them, so none calls memberlist.
type delegate struct{ m *Mesh }

func memberOf(n *memberlist.Node) (Member, error) {
	m, err := decodeMeta(n.Meta)
	if err != nil {
		return Member{}, err
	}
	if m.Name != n.Name {
		return Member{}, fmt.Errorf("mesh: %q calls itself %q", n.Name, m.Name)
	}
	addr, ok := netip.AddrFromSlice(n.Addr)
	if !ok {
		return Member{}, fmt.Errorf("mesh: %q has no address", n.Name)
	}
	m.Addr = netip.AddrPortFrom(addr.Unmap(), n.Port)
	return m, nil
}

// NotifyAlive refuses nodes that aren't members of the job, and late messages from members that are gone for good.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	m, err := memberOf(n)
	if err != nil {
		d.m.count.Malformed.Add(1)
		return err
	}
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if d.m.table.gone(m.Name, m.Instance) {
		return errors.New("mesh: that process is gone")
	}
	return nil
}

func (d *delegate) NotifyJoin(n *memberlist.Node) {
	m, err := memberOf(n)
	if err != nil || m.Name == d.m.self.Name {
		return
	}
	d.m.change(func(t *table) []Event { return t.join(m, time.Now()) })
}

func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

func (d *delegate) NotifyLeave(n *memberlist.Node) {
	m, err := memberOf(n)
	if err != nil || m.Name == d.m.self.Name {
		return
	}
	// memberlist doesn't say whether it left or fell silent; a member that leaves says so with msgLeave.
	d.m.mu.Lock()
	joined := d.m.table.joined(m.Name)
	d.m.mu.Unlock()
	d.m.watcher.about(m.Name, func(st *Status, here bool) { d.m.watcher.unanswered(st, here, joined) })
}

// missed is called when a probe was not answered in time. false has memberlist try TCP as well.
func (d *delegate) missed(name string) bool {
	d.m.watcher.about(name, d.m.watcher.missed)
	return false
}

func (d *delegate) NodeMeta(limit int) []byte {
	meta := encodeMeta(&d.m.self)
	return meta[:min(len(meta), limit)]
}

func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.m.gossip.GetBroadcasts(overhead, limit)
}

func (d *delegate) LocalState(bool) []byte {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	return encodeFates(d.m.table.fates(time.Now()))
}

func (d *delegate) MergeRemoteState(b []byte, _ bool) {
	fates, err := decodeFates(b)
	if err != nil {
		d.m.count.Malformed.Add(1)
		return
	}
	for i := range fates {
		d.m.hear(&fates[i])
	}
}

// NotifyMsg must not block and must not keep b.
func (d *delegate) NotifyMsg(b []byte) {
	if len(b) < 2 || b[0] != wireVersion {
		d.m.count.Malformed.Add(1)
		return
	}
	if err := d.m.receive(b[1], b[2:]); err != nil {
		d.m.count.Malformed.Add(1)
	}
}

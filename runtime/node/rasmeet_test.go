package node

import (
	"net/netip"
	"sync"
	"testing"
)

// TestUnmet has many communicators name the same contacts at once: each is met once, by one that meets at a time, and again by whoever names
// it later.
func TestUnmet(t *testing.T) {
	var u unmet
	if u.add([]string{"", "nonsense", "host:1"}) {
		t.Error("what is no contact is to be met")
	}
	contacts := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	var naming sync.WaitGroup
	meets := make(chan bool, 100)
	for range cap(meets) {
		naming.Go(func() { meets <- u.add(contacts) })
	}
	naming.Wait()
	close(meets)
	meeting := 0
	for meet := range meets {
		if meet {
			meeting++
		}
	}
	if meeting != 1 {
		t.Errorf("%d meet them, want one", meeting)
	}
	met := map[netip.AddrPort]int{}
	for addr, ok := u.next(); ok; addr, ok = u.next() {
		met[addr]++
	}
	if len(met) != len(contacts) || met[netip.MustParseAddrPort(contacts[0])] != 1 {
		t.Errorf("met are %v, want each once", met)
	}
	if !u.add(contacts[:1]) {
		t.Error("nobody meets who is named later")
	}
}

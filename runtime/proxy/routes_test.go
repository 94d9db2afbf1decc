package proxy

import "testing"

// Every pair of ranks reaches each other over existing connections, and with PXN a rank has one for each other node.
func TestRoutes(t *testing.T) {
	for name, ranks := range map[string][][]int{
		"2x2":     {{0, 1}, {2, 3}},
		"turns":   {{0, 2, 4}, {1, 3, 5}},
		"3x3":     {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}},
		"unequal": {{0, 1, 2, 3}, {4}, {5, 6}},
		"odd":     {{0, 1, 2}, {3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			n, equal := 0, true
			for _, local := range ranks {
				n += len(local)
				equal = equal && len(local) == len(ranks[0])
			}
			node := make([]int, n)
			for i, local := range ranks {
				for _, r := range local {
					node[r] = i
				}
			}
			pxn, direct := NewRoutes(node, ranks, true), NewRoutes(node, ranks, false)
			for a := range n {
				conns := 0
				for b := range n {
					if node[a] == node[b] {
						continue
					}
					carrier := pxn.Carrier(a, b)
					if node[carrier] != node[a] || !pxn.Connected(carrier, b) || !pxn.Connected(b, carrier) {
						t.Errorf("rank %d reaches %d through %d, which does not", a, b, carrier)
					}
					if direct.Carrier(a, b) != a || !direct.Connected(a, b) {
						t.Errorf("without PXN, rank %d does not reach %d itself", a, b)
					}
					if pxn.Connected(a, b) {
						conns++
					}
				}
				if equal && conns != len(ranks)-1 {
					t.Errorf("rank %d has %d connections", a, conns)
				}
			}
		})
	}
}

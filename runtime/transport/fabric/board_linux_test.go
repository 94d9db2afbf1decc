package fabric_test

import (
	"testing"

	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// Either all ranks have a Board or none has, even if some reach all others through shared memory.
func TestBoardIsOfAllRanksOrNone(t *testing.T) {
	shared, alone, inproc := configs()["shm"], configs()["tcp"], configs()["inproc"]
	for name, c := range map[string]struct {
		configs []fabric.Config
		want    bool
	}{
		"shared memory":                 {[]fabric.Config{shared, shared, shared}, true},
		"one is reached through TCP":    {[]fabric.Config{shared, shared, alone}, false},
		"ranks of one process":          {[]fabric.Config{inproc, inproc}, false},
		"two of one process, and one":   {[]fabric.Config{inproc, inproc, shared}, false},
		"a process has switched it off": {[]fabric.Config{alone, alone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			made := map[fabric.Config]*fabric.Fabric{}
			fabrics := make([]*fabric.Fabric, len(c.configs))
			for i, config := range c.configs {
				if made[config] == nil {
					made[config] = newFabric(t, config)
				}
				fabrics[i] = made[config]
			}
			ranks := connect(t, fabrics...)
			for r, l := range ranks {
				if got := l.Board() != nil; got != c.want {
					t.Errorf("rank %d has a board: %v, want %v", r, got, c.want)
				}
				defer l.Close()
			}
			if !c.want {
				return
			}
			for r, l := range ranks {
				l.Board().Post(1, []byte{byte(r)}, nil)
			}
			for r, l := range ranks {
				for p := range ranks {
					if post := l.Board().Posted(p, 1); post == nil || post[0] != byte(p) {
						t.Errorf("rank %d does not see what rank %d has posted", r, p)
					}
				}
			}
		})
	}
}

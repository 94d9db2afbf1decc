package fabric_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// The sizes of the bandwidth benchmarks.
func streamSizes() []int { return []int{64 << 10, 1 << 20, 16 << 20} }

func BenchmarkPingPong(b *testing.B) {
	for _, name := range []string{"inproc", "shm", "tcp", "authenticate", "encrypt"} {
		b.Run("goroutines/"+name, func(b *testing.B) {
			ranks := mesh(configs()[name])(b, 2)
			inGoroutine(b, ranks, Peer, 8, PingPong)
		})
	}
	for _, name := range []string{"shm", "tcp", "authenticate", "encrypt"} {
		b.Run("processes/"+name, func(b *testing.B) {
			l, wait := launch(b, processConfigs()[name], "pong 8", 2)
			PingPong(b, l, 8)
			l.Close()
			wait()
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for _, size := range streamSizes() {
		for _, name := range []string{"inproc", "shm", "tcp", "authenticate", "encrypt"} {
			b.Run(fmt.Sprintf("goroutines/%s/%dKiB", name, size>>10), func(b *testing.B) {
				ranks := mesh(configs()[name])(b, 2)
				inGoroutine(b, ranks, Sink, size, Stream)
			})
		}
		for _, name := range []string{"shm", "tcp", "authenticate", "encrypt"} {
			b.Run(fmt.Sprintf("processes/%s/%dKiB", name, size>>10), func(b *testing.B) {
				l, wait := launch(b, processConfigs()[name], fmt.Sprintf("sink %d", size), 2)
				Stream(b, l, size)
				l.Close()
				wait()
			})
		}
	}
}

// Most of these have more ranks than a small machine has cores.
func BenchmarkAround(b *testing.B) {
	for _, size := range []int{2, 4, 8, 16} {
		for _, name := range []string{"inproc", "shm"} {
			b.Run(fmt.Sprintf("goroutines/%s/%d", name, size), func(b *testing.B) {
				ranks := mesh(configs()[name])(b, size)
				var wg sync.WaitGroup
				for _, l := range ranks[1:] {
					wg.Go(func() {
						defer l.Close()
						if err := Forward(context.Background(), l); err != nil {
							b.Error(err)
						}
					})
				}
				Around(b, ranks[0])
				ranks[0].Close()
				wg.Wait()
			})
		}
		b.Run(fmt.Sprintf("processes/shm/%d", size), func(b *testing.B) {
			l, wait := launch(b, processConfigs()["shm"], "forward", size)
			Around(b, l)
			l.Close()
			if said, _ := wait(); said != "" {
				b.Error(said)
			}
		})
	}
}

// inGoroutine measures rank 0 against rank 1, which runs in a goroutine.
func inGoroutine(b *testing.B, ranks []*fabric.Links, peer func(context.Context, *fabric.Links, int) error,
	size int, measure func(*testing.B, *fabric.Links, int),
) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := peer(context.Background(), ranks[1], size); err != nil {
			b.Error(err)
		}
	})
	measure(b, ranks[0], size)
	ranks[0].Close()
	wg.Wait()
}

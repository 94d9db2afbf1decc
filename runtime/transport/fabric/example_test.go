package fabric_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// Two ranks of one process connect; the second says hello.
func Example() {
	f, err := fabric.New(fabric.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	// In a job, each rank makes its own Fabric, and rendezvous carries id, secret and cards.
	id, secret := lifecycle.CommID{1}, []byte("known to all ranks")
	ports := make([]*fabric.Port, 2)
	cards := make([][]byte, 2)
	for rank := range ports {
		if ports[rank], err = f.Prepare(id, secret, len(ports), false); err != nil {
			log.Fatal(err)
		}
		cards[rank] = ports[rank].Card()
	}

	var wg sync.WaitGroup
	for rank, port := range ports {
		wg.Go(func() {
			ctx := context.Background()
			links, err := port.Connect(ctx, id, rank, cards)
			if err != nil {
				log.Fatal(err)
			}
			defer links.Close()
			peer := links.Conn(1 - rank)
			if rank == 1 {
				if _, err := peer.TrySend([]byte("hello from rank 1")); err != nil {
					log.Fatal(err)
				}
				return // such a short message was taken at once
			}
			for {
				window, err := peer.Peek()
				if err != nil {
					log.Fatal(err)
				}
				if len(window) > 0 {
					fmt.Printf("%s, through %s\n", window, peer.Name())
					peer.Release(len(window))
					return
				}
				if err := links.Waiter().Idle(ctx); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	wg.Wait()
	// Output: hello from rank 1, through inproc
}

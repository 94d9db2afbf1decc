package tcp_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
)

// Rank 0 serves, and every rank dials. The program passes the unique id, which has the address and the secret, from
// rank 0 to the others. (Here all are in one process.)
func Example() {
	ctx := context.Background()
	port, err := door.Listen(ctx, "127.0.0.1:0", door.Plain, slog.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer port.Close()
	server := tcp.NewServer()
	defer server.Close()
	id, err := lifecycle.NewUniqueID(port.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := server.Serve(port, id); err != nil {
		fmt.Println(err)
		return
	}
	const size = 2
	cards := make([][][]byte, size)
	var ranks sync.WaitGroup
	for rank := range size {
		ranks.Go(func() {
			meet := tcp.Dial(id, tcp.Config{})
			defer meet.Close()
			var err error
			if cards[rank], err = meet.Exchange(ctx, "cards", rank, size, fmt.Appendf(nil, "card of rank %d",
				rank)); err != nil {
				fmt.Println(err)
			}
		})
	}
	ranks.Wait()
	fmt.Printf("rank 1 got %q\n", cards[1])
	// Output:
	// rank 1 got ["card of rank 0" "card of rank 1"]
}

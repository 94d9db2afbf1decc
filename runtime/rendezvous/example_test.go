package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
)

// Three ranks exchange their cards. (Here they are goroutines; package tcp does the same for processes.)
func Example() {
	const size = 3
	meeting := mem.New()
	cards := make([][][]byte, size)
	var ranks sync.WaitGroup
	for rank := range size {
		ranks.Go(func() {
			meet := meeting.Rank()
			defer meet.Close()
			card := fmt.Appendf(nil, "card of rank %d", rank)
			var err error
			if cards[rank], err = meet.Exchange(context.Background(), "cards", rank, size, card); err != nil {
				fmt.Println(err)
			}
		})
	}
	ranks.Wait()
	fmt.Printf("rank 2 got %q\n", cards[2])
	// Output:
	// rank 2 got ["card of rank 0" "card of rank 1" "card of rank 2"]
}

// A rank whose wait fails learns which ranks it waited for.
func ExampleMissingError() {
	meet := mem.New().Rank()
	defer meet.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the wait has ended
	_, err := meet.Exchange(ctx, "cards", 1, 4, nil)
	var missing *rendezvous.MissingError
	if errors.As(err, &missing) {
		fmt.Println("not arrived:", words.Numbers(missing.Missing()))
	}
	// Output:
	// not arrived: 0, 2 and 3
}

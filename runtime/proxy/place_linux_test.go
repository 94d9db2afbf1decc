package proxy

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/runtime/door"
)

// Messages arrive unchanged whether the receiver places all of them, a part, or nothing, and however much has arrived
// by then.
func TestPlace(t *testing.T) {
	for _, wire := range []door.Wire{door.Plain, door.Encrypt} {
		t.Run(wire.String(), func(t *testing.T) { place(t, wire) })
	}
}

func place(t *testing.T, wire door.Wire) {
	t.Helper()
	c := newCluster(t, 0, 0, 1, 1)
	c.wire = wire
	c.connect()
	data := pattern(20 << 20)
	var sending sync.WaitGroup
	sending.Go(func() { c.send(data) })
	conn, random := c.endpoints[3].Conn(0), rand.New(rand.NewPCG(1, 2))
	got := make([]byte, len(data))
	placed := 0
	for at := 0; at < len(got); {
		end := min(at+8*(1+random.IntN(maxWindow/2)), len(got))
		placeAt := at // a third of the messages is not placed
		if way := random.IntN(3); way == 0 {
			placeAt = end
		} else if way == 1 {
			placeAt += 8 * random.IntN((end-at)/8)
		}
		c.await(3, func() bool {
			for at < end {
				if at >= placeAt {
					placeAt = end
					conn.Place(got[at:end])
				}
				window, err := conn.Peek()
				if err != nil {
					t.Fatal(err)
				}
				n := min(len(window), max(placeAt, at+8)-at) &^ 7
				if n == 0 {
					return false
				}
				if &window[0] == &got[at] {
					placed += n
				}
				copy(got[at:], window[:n])
				conn.Release(n)
				at += n
			}
			return true
		})
	}
	sending.Wait()
	if !bytes.Equal(got, data) {
		t.Error("not what was sent")
	}
	if placed == 0 {
		t.Error("nothing arrived where it was wanted")
	}
}

// Memory that the receiver has taken back is no longer written.
func TestPlacedIsTakenBack(t *testing.T) {
	c := newCluster(t, 0, 1)
	c.connect()
	conn := c.endpoints[1].Conn(0)
	send := func(p []byte) {
		if n, err := c.endpoints[0].Conn(1).TrySend(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	memory := make([]byte, 64)
	conn.Place(memory)
	send([]byte("8 bytes."))
	c.await(1, func() bool {
		window, _ := conn.Peek()
		return len(window) == 8 && &window[0] == &memory[0]
	})
	conn.Release(8)
	conn.Place(nil)
	send([]byte("8 others"))
	if got := c.take(1, 0, 8); string(got) != "8 others" {
		t.Errorf("got %q", got)
	}
	if want := append([]byte("8 bytes."), make([]byte, 56)...); !bytes.Equal(memory, want) {
		t.Errorf("the memory is %q", memory)
	}
}

// A word of which only a part has arrived is not split.
func TestPlaceWithinAWord(t *testing.T) {
	c := newCluster(t, 0, 1)
	conn := c.endpoints[1].Conn(0)
	data, memory := []byte("two words, 16 by"), make([]byte, 16)
	conn.put(data[:5])
	conn.Place(memory)
	conn.put(data[5:])
	for i, want := range []string{"two word", "s, 16 by"} {
		window, err := conn.Peek()
		if string(window) != want || err != nil {
			t.Errorf("word %d is %q (%v)", i, window, err)
		}
		if placed := len(window) > 0 && &window[0] == &memory[8]; placed != (i == 1) {
			t.Errorf("word %d is in the memory: %v", i, placed)
		}
		conn.Release(8)
	}
}

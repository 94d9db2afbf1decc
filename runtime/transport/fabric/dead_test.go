package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// A peer that dies between saying how it is reached and being reached is not waited for.
func TestConnectWithADeadProcess(t *testing.T) {
	for name, config := range processConfigs() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, of(config, 0))
			port, err := f.Prepare(processComm(), secret(), 2, false)
			if err != nil {
				t.Fatal(err)
			}
			peer := start(t, job{Program: "forward", Rank: 1, Size: 2, Config: of(config, 1)})
			card, err := readCards(peer.out, 1)
			if err != nil {
				t.Fatal(err, peer.stderr.String())
			}
			if err := peer.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = peer.cmd.Wait() // says that it was killed
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			_, err = port.Connect(ctx, lifecycle.CommID{}, 0, [][]byte{port.Card(), card[0]})
			var dead *lifecycle.PeerError
			if !errors.As(err, &dead) || dead.Code != lifecycle.CodeRankDead || dead.Rank != 1 {
				t.Fatalf("%v, want that rank 1 died", err)
			}
			if ctx.Err() != nil {
				t.Error("it was told only when the context ended")
			}
		})
	}
}

// Nor is a peer that dies while this rank connects: here it has not even begun to connect.
func TestConnectWithADyingProcess(t *testing.T) {
	for name, config := range processConfigs() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, of(config, 0))
			port, err := f.Prepare(processComm(), secret(), 2, false)
			if err != nil {
				t.Fatal(err)
			}
			peer := start(t, job{Program: "forward", Rank: 0, Size: 2, Config: of(config, 1)})
			card, err := readCards(peer.out, 1)
			if err != nil {
				t.Fatal(err, peer.stderr.String())
			}
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			done := make(chan error, 1)
			go func() {
				_, err := port.Connect(ctx, lifecycle.CommID{}, 1, [][]byte{card[0], port.Card()})
				done <- err
			}()
			if err := peer.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = peer.cmd.Wait() // says that it was killed
			var dead *lifecycle.PeerError
			if err := <-done; !errors.As(err, &dead) || dead.Code != lifecycle.CodeRankDead || dead.Rank != 0 {
				t.Fatalf("%v, want that rank 0 died", err)
			}
		})
	}
}

// A rank that connected, closed in order and ended before this rank looked does not count as lost: what it sent can
// still be received.
func TestConnectWithAProcessThatIsThrough(t *testing.T) {
	config := fabric.Config{DisableSHM: true}
	f := newFabric(t, of(config, 0))
	port, err := f.Prepare(processComm(), secret(), 2, false)
	if err != nil {
		t.Fatal(err)
	}
	peer := start(t, job{Program: "greeting", Rank: 0, Size: 2, Config: of(config, 1)}) // the lower rank dials
	card, err := readCards(peer.out, 1)
	if err != nil {
		t.Fatal(err, peer.stderr.String())
	}
	cards := [][]byte{card[0], port.Card()}
	if _, err := fmt.Fprintf(peer.in, "%x\n%x\n", cards[0], cards[1]); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	l, err := port.Connect(ctx, lifecycle.CommID{}, 1, cards)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := peer.cmd.Wait(); err != nil {
		t.Fatal(err, peer.stderr.String())
	}
	got := make([]byte, len(greeting))
	if err := Recv(ctx, l, 0, got); err != nil || string(got) != greeting {
		t.Errorf("%q, %v; want %q", got, err, greeting)
	}
	if err := l.Lost(0); err != nil {
		t.Errorf("it counts as lost: %v", err)
	}
}

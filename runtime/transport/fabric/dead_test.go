package fabric_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// A peer that dies between saying how it is reached and being reached is not waited for.
func TestConnectWithADeadProcess(t *testing.T) {
	for name, config := range processConfigs() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, config)
			port, err := f.Prepare(processComm(), secret(), 2)
			if err != nil {
				t.Fatal(err)
			}
			peer := start(t, job{Program: "forward", Rank: 1, Size: 2, Config: config})
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
			_, err = port.Connect(ctx, 0, [][]byte{port.Card(), card[0]})
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

// Nor is one that dies meanwhile: here it has not even begun to connect.
func TestConnectWithADyingProcess(t *testing.T) {
	for name, config := range processConfigs() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, config)
			port, err := f.Prepare(processComm(), secret(), 2)
			if err != nil {
				t.Fatal(err)
			}
			peer := start(t, job{Program: "forward", Rank: 0, Size: 2, Config: config})
			card, err := readCards(peer.out, 1)
			if err != nil {
				t.Fatal(err, peer.stderr.String())
			}
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			done := make(chan error, 1)
			go func() {
				_, err := port.Connect(ctx, 1, [][]byte{card[0], port.Card()})
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

package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Four ranks: two in one process, one in another of the same host, one on another host. (All are in this process;
// Fabrics and host ids make them look otherwise.)
func TestTopologyAndChoice(t *testing.T) {
	here, beside := newFabric(t, fabric.Config{}), newFabric(t, fabric.Config{})
	away := newFabric(t, fabric.Config{HostID: "elsewhere"})
	links := connect(t, here, away, beside, here)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	pid := os.Getpid()
	for rank, want := range [][]string{
		{"", "tcp", "shm", "inproc"},
		{"tcp", "", "tcp", "tcp"},
		{"shm", "pxn", "", "shm"},
		{"inproc", "pxn", "shm", ""},
	} {
		if diff := cmp.Diff(transport.Topology{
			Node: []int{0, 1, 0, 0}, Ranks: [][]int{{0, 2, 3}, {1}}, Transport: want,
			Host: []string{host, host, host, host}, PID: []int{pid, pid, pid, pid},
			Connections: []int{1, 3, 1, 1}[rank], PXN: tape.PXNOn,
		}, links[rank].Topology()); diff != "" {
			t.Errorf("rank %d: (-want +got)\n%s", rank, diff)
		}
	}
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(func() {
			for range 20 {
				if err := Barrier(t.Context(), l); err != nil {
					t.Errorf("rank %d: %v", l.Rank(), err)
				}
			}
		})
	}
	wg.Wait()
}

// Either PXN is on, or each rank knows why it isn't and has a connection to each rank with which it does not share
// memory.
func TestWhyNoPXN(t *testing.T) {
	here, there := fabric.Config{}, fabric.Config{HostID: "elsewhere"}
	disabled, noMemory := here, here
	disabled.DisablePXN, noMemory.DisableSHM = true, true
	for _, c := range []struct {
		ranks       []fabric.Config
		want        tape.PXN
		connections int // of rank 0
	}{
		{[]fabric.Config{here, here, there, there}, tape.PXNOn, 1},
		{[]fabric.Config{here, disabled, there, there}, tape.PXNDisabled, 2},
		{[]fabric.Config{here, noMemory, there, there}, tape.PXNNoMemory, 3}, // one of them to its neighbor
		{[]fabric.Config{here, there}, tape.PXNAlone, 1},
		{[]fabric.Config{here, here}, tape.PXNOneNode, 0},
	} {
		var fabrics []*fabric.Fabric
		for _, config := range c.ranks {
			fabrics = append(fabrics, newFabric(t, config))
		}
		for rank, l := range connect(t, fabrics...) {
			if got := l.Topology(); got.PXN != c.want || rank == 0 && got.Connections != c.connections {
				t.Errorf("rank %d of %+v: PXN is %d with %d connections, want %d and %d", rank, c.ranks, got.PXN,
					got.Connections, c.want, c.connections)
			}
		}
	}
}

// prepare prepares a communicator with a rank for each Fabric.
func prepare(t *testing.T, fabrics ...*fabric.Fabric) (ports []*fabric.Port, cards [][]byte) {
	t.Helper()
	for _, f := range fabrics {
		p, err := f.Prepare(processComm(), secret(), len(fabrics), false)
		if err != nil {
			t.Fatal(err)
		}
		ports, cards = append(ports, p), append(cards, p.Card())
	}
	return ports, cards
}

// When one side can't open the other's shared memory, both use TCP, and the other connections are unaffected. Here rank
// 0 gets a card of rank 1 with another file descriptor in it.
func TestFallsBackToTCP(t *testing.T) {
	fabrics := []*fabric.Fabric{
		newFabric(t, fabric.Config{}), newFabric(t, fabric.Config{}), newFabric(t, fabric.Config{}),
	}
	ports, cards := prepare(t, fabrics...)
	spoiled := append([][]byte(nil), cards...)
	spoiled[1] = fabric.WithInboxFD(t, cards[1], 1<<20)
	want := [][]string{{"", "tcp", "shm"}, {"tcp", "", "shm"}, {"shm", "shm", ""}}
	var wg sync.WaitGroup
	for rank, p := range ports {
		wg.Go(func() {
			given := cards
			if rank == 0 {
				given = spoiled
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			l, err := p.Connect(ctx, lifecycle.CommID{}, rank, given)
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			defer l.Close()
			if diff := cmp.Diff(want[rank], l.Topology().Transport); diff != "" {
				t.Errorf("rank %d: (-want +got)\n%s", rank, diff)
			}
			if err := Barrier(ctx, l); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
}

func TestConnectNamesWhoIsMissing(t *testing.T) {
	for name, config := range configs() {
		for rank := range 2 {
			t.Run(fmt.Sprintf("%s/%d", name, rank), func(t *testing.T) {
				f := newFabric(t, config)
				ports, cards := prepare(t, f, f)
				ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer stop()
				_, err := ports[rank].Connect(ctx, lifecycle.CommID{}, rank, cards)
				var lost *lifecycle.PeerError
				if !errors.As(err, &lost) || lost.Code != lifecycle.CodeNotJoined || lost.Rank != 1-rank ||
					!errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				ports[1-rank].GiveUp(transport.Notice{})
			})
		}
	}
}

// A rank that closes as soon as it is connected has confirmed that: the others are connected, too.
func TestConnectedThoughOthersClose(t *testing.T) {
	const rounds = 100
	for name, config := range configs() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, config)
			for range rounds {
				ports, cards := prepare(t, f, f, f)
				var wg sync.WaitGroup
				for rank, p := range ports {
					wg.Go(func() {
						l, err := p.Connect(t.Context(), lifecycle.CommID{}, rank, cards)
						if err != nil {
							t.Errorf("rank %d: %v", rank, err)
							return
						}
						l.Close()
					})
				}
				wg.Wait()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// All other ranks, those that dial it and those that wait for it, are told the reason of a rank that gives up, whether
// it gives up before or while they connect.
func TestAllAreToldOfARankThatGivesUp(t *testing.T) {
	why := transport.Notice{Code: lifecycle.CodeInternal, Culprit: -1, Detail: "its disk is full"}
	for name, config := range configs() {
		for _, before := range []bool{true, false} {
			for quitter := range 3 {
				t.Run(fmt.Sprintf("%s/%d/%t", name, quitter, before), func(t *testing.T) {
					f := newFabric(t, config)
					ports, cards := prepare(t, f, f, f)
					if before {
						ports[quitter].GiveUp(why)
					}
					var wg sync.WaitGroup
					for rank, p := range ports {
						if rank == quitter {
							continue
						}
						wg.Go(func() {
							_, err := p.Connect(t.Context(), lifecycle.CommID{}, rank, cards)
							var told *transport.NoticeError
							if !errors.As(err, &told) || told.Culprit() != quitter || told.Notice.Detail != why.Detail {
								t.Errorf("rank %d: %v", rank, err)
							}
						})
					}
					if !before {
						ports[quitter].GiveUp(why)
					}
					wg.Wait()
				})
			}
		}
	}
}

// A rank whose context ended because a rank was lost elsewhere tells the others of that loss, not of itself.
func TestAllAreToldOfALossElsewhere(t *testing.T) {
	lost := &lifecycle.PeerError{Code: lifecycle.CodeRankDead, Rank: 2, Detail: "its process ended"}
	for name, config := range configs() {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, config)
			ports, cards := prepare(t, f, f)
			ctx, lose := context.WithCancelCause(t.Context())
			lose(lost)
			if _, err := ports[0].Connect(ctx, lifecycle.CommID{}, 0, cards); !errors.Is(err, lost) {
				t.Errorf("rank 0: %v", err)
			}
			l, err := ports[1].Connect(t.Context(), lifecycle.CommID{}, 1, cards)
			if err == nil { // rank 0 had confirmed that it is connected
				_, err = l.FirstLost()
				l.Close()
			}
			var told *transport.NoticeError
			if !errors.As(err, &told) || told.Peer != 0 || told.Culprit() != lost.Rank ||
				told.Notice.Code != lost.Code || told.Notice.Detail != lost.Detail {
				t.Errorf("rank 1: %v", err)
			}
		})
	}
}

func TestConnectRefuses(t *testing.T) {
	f := newFabric(t, fabric.Config{})
	other, err := f.Prepare(lifecycle.CommID{9}, secret(), 2, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rank   int
		change func([][]byte) [][]byte
		says   string
	}{
		"another rank's place": {1, nil, "card 1 is not this rank's"},
		"an empty card":        {0, func(c [][]byte) [][]byte { return [][]byte{c[0], nil} }, "cut short"},
		"a short card":         {0, func(c [][]byte) [][]byte { return [][]byte{c[0], c[1][:20]} }, "cut short"},
		"another version": {
			0, func(c [][]byte) [][]byte { return [][]byte{c[0], append([]byte{99}, c[1][1:]...)} }, "version 99",
		},
		"another communicator": {
			0, func(c [][]byte) [][]byte { return [][]byte{c[0], other.Card()} }, "it makes communicator",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ports, cards := prepare(t, f, f)
			if c.change != nil {
				cards = c.change(cards)
			}
			if _, err := ports[0].Connect(t.Context(), lifecycle.CommID{}, c.rank, cards); err == nil ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want something with %q", err, c.says)
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	_, err := fabric.New(fabric.Config{
		HostID: strings.Repeat("x", 65), SocketIfname: "^", Keepalive: time.Second, Wire: 3,
	})
	for _, says := range []string{"HostID has 65 bytes", `SocketIfname is "^"`, "keepalive is 1s", "wire is 3"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want something with %q", err, says)
		}
	}
	f := newFabric(t, fabric.Config{SocketIfname: "nosuch"})
	if _, err := f.Prepare(processComm(), secret(), 2, false); err == nil ||
		!strings.Contains(err.Error(), `fits NCCL_SOCKET_IFNAME="nosuch"; there are: `) {
		t.Errorf("got %v, want the pattern, and the names of the interfaces", err)
	}
}

// Ranks with different protection all report that, and no two of them connect.
func TestTwoWires(t *testing.T) {
	plain := newFabric(t, fabric.Config{})
	encrypt := newFabric(t, fabric.Config{Wire: door.Encrypt})
	ports, cards := prepare(t, plain, encrypt)
	for rank, says := range []string{
		`its wire is to be "encrypt", and this rank's "plain": set CARILLON_WIRE alike`,
		`its wire is to be "plain", and this rank's "encrypt": set CARILLON_WIRE alike`,
	} {
		_, err := ports[rank].Connect(t.Context(), lifecycle.CommID{}, rank, cards)
		var other *lifecycle.PeerError
		if !errors.As(err, &other) || other.Code != lifecycle.CodeMismatch || other.Rank != 1-rank ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Small communicators in one process cost neither goroutines nor descriptors, and little memory.
func TestManySmallCommunicators(t *testing.T) {
	f := newFabric(t, fabric.Config{})
	fabrics := []*fabric.Fabric{f, f, f, f}
	connect(t, fabrics...) // opens the listener
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	fds, goroutines := descriptors(), runtime.NumGoroutine()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const comms = 500
	var all [][]*fabric.Links
	for range comms {
		all = append(all, connect(t, fabrics...))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := descriptors(); n > fds {
		t.Errorf("%d file descriptors, %d before", n, fds)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if each := (after.HeapAlloc - before.HeapAlloc) / comms; each > 32<<10 {
		t.Errorf("each communicator of 4 ranks takes %d bytes", each)
	}
	runtime.KeepAlive(all)
}

// When a fabric is closed, after its ports and links, nothing is left.
func TestFabricClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, config := range configs() {
		f, err := fabric.New(config)
		if err != nil {
			t.Fatal(err)
		}
		ports, _ := prepare(t, f, f)
		for _, p := range ports {
			p.GiveUp(transport.Notice{})
		}
		for _, l := range connect(t, f, f, f) {
			l.Close()
		}
		f.Close()
	}
}

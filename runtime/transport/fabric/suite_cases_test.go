package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// Case is the program of one rank. All ranks of it run the same function, as ranks of a communicator do: goroutines of
// one process (Run), or a process each (TestConformanceBetweenProcesses).
type Case struct {
	Name string
	Size int
	// Dies says that ranks other than 0 kill their processes, so the case needs processes of their own.
	Dies bool
	Run  func(ctx context.Context, l *fabric.Links) error
}

// Cases returns all cases that a rank can run without access to the others.
func Cases() []Case {
	return []Case{
		{Name: "integrity", Size: 3, Run: integrity},
		{Name: "alignment", Size: 2, Run: alignment},
		{Name: "sizes", Size: 2, Run: sizes},
		{Name: "token ring", Size: 8, Run: tokenRing},
		{Name: "barriers", Size: 5, Run: barriers},
		{Name: "orderly close", Size: 2, Run: orderlyClose},
		{Name: "orderly close is no loss for others", Size: 3, Run: orderlyBystander},
		{Name: "notice to a receiver", Size: 3, Run: noticeToReceiver},
		{Name: "notice to a blocked sender", Size: 2, Run: noticeToSender},
		{Name: "notice before close", Size: 8, Run: noticeBeforeClose},
		{Name: "data before a notice", Size: 2, Run: dataBeforeNotice},
		{Name: "after close", Size: 2, Run: afterClose},
		{Name: "context", Size: 2, Run: contextEnds},
		{Name: "death of a silent peer", Size: 3, Dies: true, Run: silentDeath},
		{Name: "death of the receiver", Size: 2, Dies: true, Run: receiverDeath},
		{Name: "data before death", Size: 2, Dies: true, Run: dataBeforeDeath(1)},
		{Name: "data before death, of another rail", Size: 4, Dies: true, Run: dataBeforeDeath(3)},
	}
}

// integrity makes every pair exchange random amounts both ways at once, with receivers that take odd pieces.
func integrity(ctx context.Context, l *fabric.Links) error {
	random := rand.New(rand.NewPCG(7, uint64(l.Rank())))
	const rounds = 12
	sizes := rand.New(rand.NewPCG(1, 2)) // the same on all ranks
	for round := range rounds {
		size := 1 + sizes.IntN(1<<(6+round)) + round*round*997
		var transfers []*Transfer
		for peer := range l.Size() {
			if peer == l.Rank() {
				continue
			}
			out := make([]byte, size)
			fill(out, l.Rank(), peer, round)
			transfers = append(transfers, &Transfer{Peer: peer, Send: true, Buf: out})
			transfers = append(transfers, &Transfer{Peer: peer, Buf: make([]byte, size), Most: func() int {
				return random.IntN(1 + size/3) // may be 0
			}})
		}
		if err := Move(ctx, l, transfers...); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		for _, t := range transfers {
			if t.Send {
				continue
			}
			if err := check(t.Buf, t.Peer, l.Rank(), round); err != nil {
				return err
			}
		}
	}
	return Barrier(ctx, l)
}

// alignment checks that windows keep elements of 8 bytes together.
func alignment(ctx context.Context, l *fabric.Links) error {
	random := rand.New(rand.NewPCG(3, 4)) // the same on both ranks
	for round := range 50 {
		buf := make([]byte, 8*(1+random.IntN(40<<10)))
		if l.Rank() == 1 {
			fill(buf, 1, 0, round)
			if err := Send(ctx, l, 0, buf); err != nil {
				return err
			}
			continue
		}
		c := l.Conn(1)
		for got := 0; got < len(buf); {
			w, err := c.Peek()
			if err != nil {
				return err
			}
			if len(w)%8 != 0 && c.Name() != "tcp" {
				return fmt.Errorf("window of %d bytes", len(w))
			}
			if len(w) > 0 && uintptr(unsafe.Pointer(&w[0]))%8 != 0 {
				return fmt.Errorf("window at %p", &w[0])
			}
			n := copy(buf[got:], w[:len(w)&^7])
			c.Release(n)
			got += n
			if n > 0 {
				l.Waiter().Active()
			} else if err := l.Waiter().Idle(ctx); err != nil {
				return err
			}
		}
		if err := check(buf, 1, 0, round); err != nil {
			return err
		}
	}
	return Barrier(ctx, l)
}

// sizes tries sizes around those at which transports change their behavior: rings, pieces, eager limits.
func sizes(ctx context.Context, l *fabric.Links) error {
	peer := 1 - l.Rank()
	for shift := 3; shift <= 21; shift++ {
		for _, size := range []int{1<<shift - 8, 1 << shift, 1<<shift + 8} {
			out, in := make([]byte, size), make([]byte, size)
			fill(out, l.Rank(), peer, size)
			if err := Move(ctx, l, &Transfer{Peer: peer, Send: true, Buf: out},
				&Transfer{Peer: peer, Buf: in}); err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
			if err := check(in, peer, l.Rank(), size); err != nil {
				return err
			}
		}
	}
	return Barrier(ctx, l)
}

// tokenRing passes a token around: at any time one rank has work and all others wait.
func tokenRing(ctx context.Context, l *fabric.Links) error {
	next, prev := (l.Rank()+1)%l.Size(), (l.Rank()+l.Size()-1)%l.Size()
	token := make([]byte, 8)
	const rounds = 60
	for range rounds {
		if l.Rank() > 0 {
			if err := Recv(ctx, l, prev, token); err != nil {
				return err
			}
		}
		token[l.Rank()%8]++
		if err := Send(ctx, l, next, token); err != nil {
			return err
		}
		if l.Rank() == 0 {
			if err := Recv(ctx, l, prev, token); err != nil {
				return err
			}
		}
	}
	if want := byte(rounds * l.Size() / 8 % 256); l.Rank() == 0 && token[0] != want {
		return fmt.Errorf("the token was counted %d times, want %d", token[0], want)
	}
	return Barrier(ctx, l)
}

func barriers(ctx context.Context, l *fabric.Links) error {
	for range 100 {
		if err := Barrier(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// orderlyClose makes rank 1 leave with its last message unread.
func orderlyClose(ctx context.Context, l *fabric.Links) error {
	buf := make([]byte, 3000)
	if l.Rank() == 1 {
		fill(buf, 1, 0, 0)
		if err := Send(ctx, l, 0, buf); err != nil {
			return err
		}
		l.Close()
		return nil
	}
	// Sending reports that the peer is gone, so this rank knows that the peer has closed before it reads.
	if err := sendUntilError(ctx, l, 1); !isClosed(err, 1) {
		return fmt.Errorf("sending to a rank that closed: %w", err)
	}
	if err := Recv(ctx, l, 1, buf); err != nil {
		return fmt.Errorf("receive what was sent before the close: %w", err)
	}
	if err := check(buf, 1, 0, 0); err != nil {
		return err
	}
	if err := Recv(ctx, l, 1, buf); !isClosed(err, 1) {
		return fmt.Errorf("receiving from a rank that closed: %w", err)
	}
	if peer, err := l.FirstLost(); err != nil {
		return fmt.Errorf("rank %d, which closed in order, counts as lost: %w", peer, err)
	}
	return nil
}

// orderlyBystander makes rank 2 leave while the others still exchange messages.
func orderlyBystander(ctx context.Context, l *fabric.Links) error {
	if l.Rank() == 2 {
		l.Close()
		return nil
	}
	if err := sendUntilError(ctx, l, 2); !isClosed(err, 2) {
		return err
	}
	peer := 1 - l.Rank()
	for range 100 {
		err := Move(ctx, l, &Transfer{Peer: peer, Send: true, Buf: make([]byte, 512)},
			&Transfer{Peer: peer, Buf: make([]byte, 512)})
		if err != nil {
			return err
		}
	}
	return nil
}

// aNotice returns a notice with all fields set, and more detail than must be carried.
func aNotice() transport.Notice {
	detail := make([]byte, transport.MaxDetail)
	for i := range detail {
		detail[i] = 'a' + byte(i%26)
	}
	return transport.Notice{Code: lifecycle.CodeAbandoned, Culprit: 1, Passed: 1<<40 + 7, Detail: string(detail)}
}

func noticeToReceiver(ctx context.Context, l *fabric.Links) error {
	if err := gather(ctx, l, 1); err != nil {
		return err
	}
	if l.Rank() == 1 {
		l.Notify(aNotice())
		l.Notify(transport.Notice{Code: lifecycle.CodeInternal}) // has no effect
		return nil
	}
	// This rank waits for rank 2, but rank 1 is at fault: that must be detected all the same.
	peer := 2 - l.Rank()
	missing := &Transfer{Peer: peer, Buf: make([]byte, 16)}
	if err := isNotice(Move(ctx, l, missing), 1); err != nil {
		return err
	}
	if err := isNotice(l.Lost(1), 1); err != nil {
		return err
	}
	if err := l.Lost(peer); err != nil {
		return fmt.Errorf("rank %d counts as lost: %w", peer, err)
	}
	return farewell(ctx, l, missing)
}

func noticeToSender(ctx context.Context, l *fabric.Links) error {
	if l.Rank() == 1 {
		// Wait until the sender has started.
		for c := l.Conn(0); ; {
			if w, err := c.Peek(); len(w) > 0 || err != nil {
				l.Notify(aNotice())
				return err
			}
			if err := l.Waiter().Idle(ctx); err != nil {
				return err
			}
		}
	}
	// Any amount may be taken before the notice is seen: a peer that has closed after it reads on for a while.
	for {
		if err := Send(ctx, l, 1, make([]byte, 1<<20)); err != nil {
			return isNotice(err, 1)
		}
	}
}

// noticeBeforeClose makes a rank give up in two goroutines, one of which closes at once: the notice reaches all others.
func noticeBeforeClose(ctx context.Context, l *fabric.Links) error {
	if err := gather(ctx, l, 0); err != nil {
		return err
	}
	if l.Rank() == 0 {
		var both sync.WaitGroup
		both.Go(func() { l.Notify(aNotice()) })
		both.Go(func() {
			l.Notify(aNotice())
			l.Close()
		})
		both.Wait()
		return nil
	}
	if err := awaitLoss(ctx, l); err != nil {
		return err
	}
	return isNotice(l.Lost(0), 0)
}

func dataBeforeNotice(ctx context.Context, l *fabric.Links) error {
	buf := make([]byte, 3000)
	if l.Rank() == 1 {
		fill(buf, 1, 0, 0)
		if err := Send(ctx, l, 0, buf); err != nil {
			return err
		}
		l.Notify(aNotice())
		return nil
	}
	if err := awaitLoss(ctx, l); err != nil {
		return err
	}
	if err := drain(ctx, l, 1, buf); err != nil {
		return fmt.Errorf("receive what was sent before the notice: %w", err)
	}
	return isNotice(drain(ctx, l, 1, buf), 1)
}

func afterClose(ctx context.Context, l *fabric.Links) error {
	if err := Barrier(ctx, l); err != nil {
		return err
	}
	c := l.Conn(1 - l.Rank())
	for range 2 {
		if err := c.Close(); err != nil {
			return err
		}
		if _, err := c.Peek(); !errors.Is(err, transport.ErrClosed) {
			return fmt.Errorf("after Close, Peek says: %w", err)
		}
		if n, err := c.TrySend(make([]byte, 8)); n != 0 || !errors.Is(err, transport.ErrClosed) {
			return fmt.Errorf("after Close, TrySend says: %d, %w", n, err)
		}
		c.Notify(aNotice())
	}
	return nil
}

func contextEnds(ctx context.Context, l *fabric.Links) error {
	if l.Rank() == 1 {
		return awaitClosed(ctx, l)
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	begun := time.Now()
	err := Recv(short, l, 1, make([]byte, 8))
	if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
		return fmt.Errorf("a context of 50 ms ended after %v: %w", took, err)
	}
	l.Close()
	return nil
}

func silentDeath(ctx context.Context, l *fabric.Links) error {
	if err := gather(ctx, l, 2); err != nil {
		return err
	}
	if l.Rank() == 2 {
		return die()
	}
	peer := 1 - l.Rank() // not the rank that dies
	missing := &Transfer{Peer: peer, Buf: make([]byte, 16)}
	if err := isDead(Move(ctx, l, missing), 2); err != nil {
		return err
	}
	if err := isDead(l.Lost(2), 2); err != nil {
		return err
	}
	return farewell(ctx, l, missing)
}

func receiverDeath(ctx context.Context, l *fabric.Links) error {
	if l.Rank() == 1 {
		if err := Recv(ctx, l, 0, make([]byte, 8)); err != nil {
			return err
		}
		return die()
	}
	return isDead(Send(ctx, l, 1, make([]byte, 64<<20)), 1)
}

// dataBeforeDeath makes a rank send to rank 0 and die.
func dataBeforeDeath(dying int) func(ctx context.Context, l *fabric.Links) error {
	return func(ctx context.Context, l *fabric.Links) error {
		buf := make([]byte, 100<<10)
		if l.Rank() == dying {
			for peer := range l.Size() { // all are connected; connecting fails if a rank dies meanwhile
				if peer == dying {
					continue
				}
				if err := drain(ctx, l, peer, make([]byte, 1)); err != nil {
					return err
				}
			}
			fill(buf, dying, 0, 0)
			if err := Send(ctx, l, 0, buf); err != nil {
				return err
			}
			return die()
		}
		if err := Send(ctx, l, dying, []byte{1}); err != nil {
			return err
		}
		for l.Lost(dying) == nil {
			if err := l.Waiter().Idle(ctx); err != nil {
				return err
			}
		}
		l.Waiter().Active()
		if err := isDead(l.Lost(dying), dying); err != nil || l.Rank() != 0 {
			return err
		}
		if err := drain(ctx, l, dying, buf); err != nil {
			return fmt.Errorf("receive what was sent before the death: %w", err)
		}
		if err := check(buf, dying, 0, 0); err != nil {
			return err
		}
		return isDead(drain(ctx, l, dying, buf), dying)
	}
}

// die ends this process in a way that can't be caught.
func die() error {
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		return err
	}
	select {}
}

// drain fills p with data from peer, even if peers are lost.
func drain(ctx context.Context, l *fabric.Links, peer int, p []byte) error {
	c := l.Conn(peer)
	for got := 0; got < len(p); {
		w, err := c.Peek()
		if err != nil {
			return err
		}
		n := copy(p[got:], w)
		c.Release(n)
		if got += n; n > 0 {
			l.Waiter().Active()
		} else if err := l.Waiter().Idle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// gather makes all ranks send 8 bytes to root, which waits for them. The others return without waiting, so they don't
// wait here for what root does next.
func gather(ctx context.Context, l *fabric.Links, root int) error {
	if l.Rank() != root {
		return Send(ctx, l, root, make([]byte, 8))
	}
	for peer := range l.Size() {
		if peer != root {
			if err := Recv(ctx, l, peer, make([]byte, 8)); err != nil {
				return err
			}
		}
	}
	return nil
}

// farewell returns when the peer of a transfer has come as far, too, so that the peer does not see this rank close
// before it has seen what it waits for. The transfer waits for more bytes than the 8 of the peer's farewell, which it
// may have received already.
func farewell(ctx context.Context, l *fabric.Links, missing *Transfer) error {
	if n, err := l.Conn(missing.Peer).TrySend(make([]byte, 8)); n != 8 || err != nil {
		return fmt.Errorf("sent %d bytes of a farewell: %w", n, orNothing(err))
	}
	return drain(ctx, l, missing.Peer, make([]byte, 8-missing.done))
}

// sendUntilError sends dummy data until the connection refuses.
func sendUntilError(ctx context.Context, l *fabric.Links, peer int) error {
	for {
		if _, err := l.Conn(peer).TrySend(make([]byte, 8)); err != nil {
			l.Waiter().Active()
			return err
		}
		if err := l.Waiter().Idle(ctx); err != nil {
			return err
		}
	}
}

// awaitLoss returns when some peer is lost.
func awaitLoss(ctx context.Context, l *fabric.Links) error {
	for {
		if _, err := l.FirstLost(); err != nil {
			l.Waiter().Active()
			return nil
		}
		if err := l.Waiter().Idle(ctx); err != nil {
			return err
		}
	}
}

// awaitClosed returns when all peers have closed.
func awaitClosed(ctx context.Context, l *fabric.Links) error {
	for peer := range l.Size() {
		for peer != l.Rank() {
			if _, err := l.Conn(peer).Peek(); err != nil {
				break
			}
			if err := l.Waiter().Idle(ctx); err != nil {
				return fmt.Errorf("wait for rank %d to close: %w", peer, err)
			}
		}
	}
	return nil
}

// isClosed reports whether err says that peer closed in order.
func isClosed(err error, peer int) bool {
	var notice *transport.NoticeError
	return errors.As(err, &notice) && notice.Peer == peer && notice.Notice.Code == lifecycle.CodePeerAborted
}

// isNotice returns nil if err is aNotice from peer.
func isNotice(err error, peer int) error {
	var notice *transport.NoticeError
	if !errors.As(err, &notice) || notice.Peer != peer || notice.Notice != aNotice() {
		return fmt.Errorf("want the notice of rank %d, got: %w", peer, orNothing(err))
	}
	return nil
}

// isDead returns nil if err says that peer is dead.
func isDead(err error, peer int) error {
	var lost *lifecycle.PeerError
	if !errors.As(err, &lost) || lost.Rank != peer || lost.Code != lifecycle.CodeRankDead {
		return fmt.Errorf("want the death of rank %d, got: %w", peer, orNothing(err))
	}
	return nil
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

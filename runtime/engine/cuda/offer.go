//go:build linux && cgo

package cuda

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/runtime/cuda"
)

// offerTime bounds an exchange with another rank.
const offerTime = 10 * time.Second

// An offer is a Unix socket at which other ranks, which know a token, get this rank's window and have it map their
// buffers.
type offer struct {
	listener *net.UnixListener
	token    [16]byte
	name     [16]byte

	mapper mapper // nil if no buffers are mapped

	mu     sync.Mutex
	window int // its descriptor; -1 once it is withdrawn

	open    context.Context // done after close
	end     context.CancelFunc
	serving sync.WaitGroup
}

// A mapper maps buffers of other ranks, and returns the addresses at which this rank's GPU accesses them.
type mapper interface {
	reach(request) cuda.Pointer
	forget(request)
}

// The kinds of requests, in a byte after the token.
const (
	askWindow byte = iota + 1 // answered with the descriptor
	askReach                  // followed by a request: answered with the address, 8 bytes, or 0
	askForget                 // followed by a request: answered with 0
)

// A request is about an allocation of a rank. Its size is fixed.
type request struct {
	Rank    uint32
	_       uint32
	Process [16]byte // the process in which it is at Base
	ID      uint64   // of cuda.Allocation
	Base    uint64
	Handle  cuda.IPCHandle // for other processes
}

// newOffer offers a window, whose descriptor the offer then owns, and the answers of a mapper, which may be nil.
func newOffer(window int, m mapper) (*offer, error) {
	o := &offer{window: window, mapper: m}
	_, _ = rand.Read(o.token[:]) // never fails
	_, _ = rand.Read(o.name[:])
	var err error
	o.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: socketName(o.name[:]), Net: "unix"})
	if err != nil {
		return nil, err
	}
	o.open, o.end = context.WithCancel(context.Background())
	o.serving.Go(o.serve)
	return o, nil
}

// socketName returns a name in the abstract name space, so that no file is left behind.
func socketName(name []byte) string { return "@carillon-window-" + hex.EncodeToString(name) }

// address returns what other ranks need for requests.
func (o *offer) address() []byte {
	if o == nil {
		return nil
	}
	return append(o.name[:], o.token[:]...)
}

// withdraw closes the window's descriptor. Its number may then be reused for another file.
func (o *offer) withdraw() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.window >= 0 {
		_ = unix.Close(o.window)
		o.window = -1
	}
}

// close ends the offer, and returns when no request is being answered any more.
func (o *offer) close() {
	if o == nil {
		return
	}
	o.end()
	_ = o.listener.Close()
	o.serving.Wait()
	o.withdraw()
}

func (o *offer) serve() {
	for {
		c, err := o.listener.AcceptUnix()
		if err != nil {
			return
		}
		o.serving.Go(func() { o.talk(c) })
	}
}

// talk answers the request of one connection. It handles no errors: the rank that asked reports that no answer came.
func (o *offer) talk(c *net.UnixConn) {
	defer c.Close() //nolint:errcheck // likewise
	defer context.AfterFunc(o.open, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(offerTime))
	var asked [17]byte
	if _, err := io.ReadFull(c, asked[:]); err != nil || subtle.ConstantTimeCompare(asked[:16], o.token[:]) != 1 {
		return
	}
	if asked[16] == askWindow {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.window >= 0 {
			_, _, _ = c.WriteMsgUnix([]byte{1}, syscall.UnixRights(o.window), nil)
		}
		return
	}
	var r request
	if o.mapper == nil || binary.Read(c, binary.NativeEndian, &r) != nil {
		return
	}
	var at cuda.Pointer
	switch asked[16] {
	case askReach:
		at = o.mapper.reach(r)
	case askForget:
		o.mapper.forget(r)
	}
	_ = binary.Write(c, binary.NativeEndian, at)
}

// ask connects to the offer at an address and sends a request, unless the context ends first.
func ask(ctx context.Context, address []byte, kind byte, r *request) (c *net.UnixConn, err error) {
	if len(address) != 32 {
		return nil, errors.New("it is not said where it is")
	}
	d := net.Dialer{Timeout: offerTime}
	conn, err := d.DialContext(ctx, "unix", socketName(address[:16]))
	if err != nil {
		return nil, err
	}
	c = conn.(*net.UnixConn) //nolint:errcheck // by its network
	_ = c.SetDeadline(time.Now().Add(offerTime))
	said := append(append([]byte{}, address[16:]...), kind)
	if r != nil {
		said, err = binary.Append(said, binary.NativeEndian, r)
	}
	if err == nil {
		_, err = c.Write(said)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// takeWindow gets the window that is offered at an address.
func takeWindow(address []byte) (fd int, err error) {
	c, err := ask(context.Background(), address, askWindow, nil)
	if err != nil {
		return -1, err
	}
	defer c.Close() //nolint:errcheck // read to the end
	data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, controls, _, _, err := c.ReadMsgUnix(data, control)
	if err != nil || n == 0 {
		return -1, fmt.Errorf("no descriptor came: %w", errors.Join(err, os.ErrPermission))
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("no descriptor came: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("no descriptor came: %w", err)
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

// askFor sends a request to the rank at an address, and returns where that rank's GPU accesses the allocation: 0 if it
// doesn't.
func askFor(ctx context.Context, address []byte, kind byte, r request) (at cuda.Pointer, err error) {
	c, err := ask(ctx, address, kind, &r)
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // read to the end
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	err = binary.Read(c, binary.NativeEndian, &at)
	return at, err
}

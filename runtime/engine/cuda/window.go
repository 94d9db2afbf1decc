//go:build linux && cgo

package cuda

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// memory is of one kind for all ranks of a communicator: made by one rank, mapped by all of them.
type memory interface {
	// create makes so many bytes and maps them here. The descriptor is the caller's to close.
	create(bytes int) (fd int, p cuda.Pointer, release func(), err error)
	// open maps what another rank made.
	open(fd, bytes int) (p cuda.Pointer, release func(), err error)
}

// deviceMemory is memory of each rank's GPU, for GPUs that reach each other.
type deviceMemory struct{ context *cuda.Context }

func (d deviceMemory) create(bytes int) (fd int, p cuda.Pointer, release func(), err error) {
	defer func() {
		if errors.Is(err, cuda.ErrNotSupported) { // the memory, or its descriptors
			err = kindError{err}
		}
	}()
	m, err := d.context.Create(bytes)
	if err != nil {
		return -1, 0, nil, err
	}
	defer m.Release() //nolint:errcheck // what is mapped keeps it
	if fd, err = m.Export(); err != nil {
		return -1, 0, nil, err
	}
	if p, release, err = d.mapped(m, bytes); err != nil {
		_ = unix.Close(fd)
		return -1, 0, nil, err
	}
	return fd, p, release, nil
}

func (d deviceMemory) open(fd, bytes int) (p cuda.Pointer, release func(), err error) {
	m, err := d.context.Import(fd)
	if err != nil {
		return 0, nil, kindError{err}
	}
	defer m.Release() //nolint:errcheck // what is mapped keeps it
	if p, release, err = d.mapped(m, bytes); err != nil {
		err = kindError{err} // the GPUs don't reach each other
	}
	return p, release, err
}

func (d deviceMemory) mapped(m *cuda.Shareable, bytes int) (p cuda.Pointer, release func(), err error) {
	p, err = m.Map(bytes)
	return p, func() { _ = d.context.Unmap(p, bytes) }, err
}

// hostMemory is host memory that the driver maps, for GPUs that don't reach each other.
type hostMemory struct{ context *cuda.Context }

func (h hostMemory) create(bytes int) (fd int, p cuda.Pointer, release func(), err error) {
	fd, err = unix.MemfdCreate("carillon-window", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, int64(bytes))
	}
	if err == nil {
		p, release, err = h.open(fd, bytes)
	}
	if err != nil && fd >= 0 {
		_ = unix.Close(fd)
	}
	return fd, p, release, err
}

func (h hostMemory) open(fd, bytes int) (p cuda.Pointer, release func(), err error) {
	mem, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, nil, fmt.Errorf("map a window: %w", err)
	}
	at := unsafe.Pointer(unsafe.SliceData(mem))
	if p, err = h.context.Register(at, bytes); err != nil {
		_ = unix.Munmap(mem)
		return 0, nil, err
	}
	return p, func() {
		_ = h.context.Unregister(at)
		_ = unix.Munmap(mem)
	}, nil
}

// windows are those of all ranks, by rank, where this one's GPU reaches them.
type windows struct {
	at       [kernel.MaxRanks]cuda.Pointer
	releases []func()
}

func (w *windows) release() {
	for _, release := range w.releases {
		release()
	}
	w.releases = nil
}

// refusedError is what a rank said about why it can't go on. All ranks get it.
type refusedError struct {
	rank int
	kind bool // it can't with memory of this kind
	text string
}

func (r *refusedError) Error() string { return fmt.Sprintf("rank %d: %s", r.rank, r.text) }

// kindError is why a kind of memory is of no use here: another may be.
type kindError struct{ error }

func (k kindError) Unwrap() error { return k.error }

// tell gathers what all ranks have to say, unless one of them has an error: then all get that.
func tell(gather func([]byte) ([][]byte, error), mine []byte, failed error) ([][]byte, error) {
	const well, failure, ofKind = 0, 1, 2
	payload := append([]byte{well}, mine...)
	if failed != nil {
		payload = append([]byte{failure}, failed.Error()...)
		if _, kind := errors.AsType[kindError](failed); kind {
			payload[0] = ofKind
		}
	}
	all, err := gather(payload)
	if err != nil {
		return nil, err
	}
	for r, p := range all {
		switch {
		case len(p) == 0:
			return nil, &refusedError{r, false, "it says nothing"}
		case p[0] != well:
			return nil, &refusedError{r, p[0] == ofKind, string(p[1:])}
		}
		all[r] = p[1:]
	}
	return all, nil
}

// openWindows makes a window on each rank, which ready makes ready, and maps those of all, or answers the same error on
// all ranks.
func openWindows(kind memory, rank, bytes int, gather func([]byte) ([][]byte, error), ready func(cuda.Pointer) error) (
	w *windows, err error,
) {
	w = &windows{}
	defer func() {
		if err != nil {
			w.release()
			w = nil
		}
	}()
	fd, at, release, err := kind.create(bytes)
	var o *offer
	if err == nil {
		defer unix.Close(fd) //nolint:errcheck // what is mapped keeps the memory
		w.at[rank], w.releases = at, append(w.releases, release)
		if err = ready(at); err == nil {
			o, err = newOffer(fd)
		}
		if err == nil {
			defer o.close()
		}
	}
	offers, err := tell(gather, o.address(), err)
	if err != nil {
		return w, err
	}
	for r := range offers {
		if r == rank || err != nil {
			continue
		}
		if err = w.open(kind, r, bytes, offers[r]); err != nil {
			err = fmt.Errorf("the window of rank %d: %w", r, err)
		}
	}
	_, err = tell(gather, nil, err)
	return w, err
}

func (w *windows) open(kind memory, r, bytes int, address []byte) error {
	fd, err := take(address)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // likewise
	p, release, err := kind.open(fd, bytes)
	if err != nil {
		return err
	}
	w.at[r], w.releases = p, append(w.releases, release)
	return nil
}

// offerTime bounds the handing over of a descriptor.
const offerTime = 10 * time.Second

// An offer is a Unix socket at which a descriptor can be had by whoever knows a token.
type offer struct {
	listener *net.UnixListener
	token    [16]byte
	name     [16]byte
	fd       int

	open    context.Context // until close
	end     context.CancelFunc
	serving sync.WaitGroup
}

func newOffer(fd int) (*offer, error) {
	o := &offer{fd: fd}
	_, _ = rand.Read(o.token[:]) // fails never
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

// socketName is in the abstract name space, so that nothing is left behind.
func socketName(name []byte) string { return "@carillon-window-" + hex.EncodeToString(name) }

// address is what take needs.
func (o *offer) address() []byte {
	if o == nil {
		return nil
	}
	return append(o.name[:], o.token[:]...)
}

// close returns when nobody uses the descriptor any more: its number may be another file's then.
func (o *offer) close() {
	o.end()
	_ = o.listener.Close()
	o.serving.Wait()
}

func (o *offer) serve() {
	for {
		c, err := o.listener.AcceptUnix()
		if err != nil {
			return
		}
		o.serving.Go(func() { o.give(c) })
	}
}

func (o *offer) give(c *net.UnixConn) {
	defer c.Close() //nolint:errcheck // whoever got nothing says so
	defer context.AfterFunc(o.open, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(offerTime))
	var token [16]byte
	if _, err := io.ReadFull(c, token[:]); err == nil && subtle.ConstantTimeCompare(token[:], o.token[:]) == 1 {
		_, _, _ = c.WriteMsgUnix([]byte{1}, syscall.UnixRights(o.fd), nil)
	}
}

// take gets what is offered at an address.
func take(address []byte) (fd int, err error) {
	if len(address) != 32 {
		return -1, errors.New("it is not said where it is")
	}
	c, err := net.DialTimeout("unix", socketName(address[:16]), offerTime)
	if err != nil {
		return -1, err
	}
	defer c.Close() //nolint:errcheck // read to the end
	_ = c.SetDeadline(time.Now().Add(offerTime))
	if _, err := c.Write(address[16:]); err != nil {
		return -1, err
	}
	data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, controls, _, _, err := c.(*net.UnixConn).ReadMsgUnix(data, control)
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

//go:build linux && cgo

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// memory is a kind of memory for windows, the same for all ranks of a communicator: one rank makes it, all map it.
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

// windows are those of all ranks, by rank, at the addresses at which this rank's GPU accesses them.
type windows struct {
	at        [kernel.MaxRanks]cuda.Pointer
	releases  []func()
	offer     *offer   // of this rank
	addresses [][]byte // of all ranks' offers
}

func (w *windows) release() {
	w.offer.close()
	for _, release := range w.releases {
		release()
	}
	w.releases = nil
}

// refusedError is why a rank can't go on, as it told all ranks.
type refusedError struct {
	rank int
	kind bool // with memory of this kind
	text string
}

func (r *refusedError) Error() string { return fmt.Sprintf("rank %d: %s", r.rank, r.text) }

// kindError is why a kind of memory is of no use here: another may be.
type kindError struct{ error }

func (k kindError) Unwrap() error { return k.error }

// tell gathers a payload from all ranks, unless one of them has failed: then all get its error.
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

// openWindows makes a window on each rank, which ready initializes, and maps those of all; or returns the same error on
// all ranks. The mapper, which may be nil, then answers requests of other ranks.
func openWindows(kind memory, rank, bytes int, gather func([]byte) ([][]byte, error), ready func(cuda.Pointer) error,
	m mapper,
) (w *windows, err error) {
	w = &windows{}
	defer func() {
		if err != nil {
			w.release()
			w = nil
		}
	}()
	fd, at, release, err := kind.create(bytes)
	if err == nil {
		w.at[rank], w.releases = at, append(w.releases, release)
		if err = ready(at); err == nil {
			w.offer, err = newOffer(fd, m)
		}
		if err != nil {
			_ = unix.Close(fd)
		}
	}
	w.addresses, err = tell(gather, w.offer.address(), err)
	if err != nil {
		return w, err
	}
	for r, address := range w.addresses {
		if r == rank || err != nil {
			continue
		}
		if err = w.open(kind, r, bytes, address); err != nil {
			err = fmt.Errorf("the window of rank %d: %w", r, err)
		}
	}
	_, err = tell(gather, nil, err)
	w.offer.withdraw() // what is mapped keeps the memory
	return w, err
}

func (w *windows) open(kind memory, r, bytes int, address []byte) error {
	fd, err := takeWindow(address)
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

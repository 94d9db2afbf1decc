//go:build linux && cgo

package cuda

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	kernel "github.com/carillon-rt/carillon/kernels/cuda"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

// memory is the location of windows, the same for all ranks of a communicator: on each rank's GPU, or on the host if
// the GPUs can't access each other. Its errors are kindErrors if another kind of memory may work.
type memory struct {
	context *cuda.Context
	onHost  bool
}

// create allocates the bytes and maps them here. The caller must close the descriptor.
func (m memory) create(bytes int) (fd int, p cuda.Pointer, release func(), err error) {
	made, err := m.make(bytes)
	if err != nil {
		return -1, 0, nil, err
	}
	defer made.Release() //nolint:errcheck // what is mapped keeps it
	if fd, err = made.Export(); err != nil {
		return -1, 0, nil, unsupported(err)
	}
	if p, release, err = m.mapped(made, bytes); err != nil {
		_ = unix.Close(fd)
		return -1, 0, nil, err
	}
	return fd, p, release, nil
}

func (m memory) make(bytes int) (*cuda.Shareable, error) {
	if !m.onHost {
		made, err := m.context.Create(bytes)
		return made, unsupported(err)
	}
	made, err := m.context.CreateOnHost(bytes)
	if err != nil && !errors.Is(err, cuda.ErrOutOfMemory) {
		err = kindError{fmt.Errorf("%w (it takes a driver of CUDA 12.6 or later, and in a container the right to call "+
			"mbind: for Docker --cap-add SYS_NICE)", err)}
	}
	return made, err
}

// unsupported makes an error a kindError if the driver supports neither such memory nor descriptors of it.
func unsupported(err error) error {
	if errors.Is(err, cuda.ErrNotSupported) {
		return kindError{err}
	}
	return err
}

// open maps memory that another rank made.
func (m memory) open(fd, bytes int) (p cuda.Pointer, release func(), err error) {
	theirs, err := m.context.Import(fd)
	if err != nil {
		return 0, nil, kindError{err}
	}
	defer theirs.Release() //nolint:errcheck // what is mapped keeps it
	if p, release, err = m.mapped(theirs, bytes); err != nil {
		err = kindError{err} // the GPUs can't access each other
	}
	return p, release, err
}

func (m memory) mapped(made *cuda.Shareable, bytes int) (p cuda.Pointer, release func(), err error) {
	p, err = made.Map(bytes)
	return p, func() { _ = m.context.Unmap(p, bytes) }, err
}

// windows are the windows of all ranks, by rank, at the addresses at which this rank's GPU accesses them.
type windows struct {
	at        [kernel.MaxRanks]cuda.Pointer
	releases  []func()
	offer     *offer   // this rank's offer
	addresses [][]byte // addresses of all ranks' offers
}

func (w *windows) release() {
	w.offer.close()
	for _, release := range w.releases {
		release()
	}
	w.releases = nil
}

// refusedError is the reason why a rank can't continue, as it told all ranks.
type refusedError struct {
	rank int
	kind bool // the reason concerns this kind of memory
	text string
}

func (r *refusedError) Error() string { return fmt.Sprintf("rank %d: %s", r.rank, r.text) }

// kindRefused reports whether a rank can't continue with this kind of memory: then no rank can.
func kindRefused(err error) bool {
	refused, ok := errors.AsType[*refusedError](err)
	return ok && refused.kind
}

// kindError is the reason why a kind of memory doesn't work here; another kind may.
type kindError struct{ error }

func (k kindError) Unwrap() error { return k.error }

// tell gathers a payload from all ranks. If one of them has failed, all ranks get its error.
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

// openWindows makes a window on each rank, which ready initializes, and maps the windows of all ranks, or returns the
// same error on all ranks. After that the mapper, which may be nil, answers requests of other ranks.
func openWindows(on memory, rank, bytes int, gather func([]byte) ([][]byte, error), ready func(cuda.Pointer) error,
	m mapper,
) (w *windows, err error) {
	w = &windows{}
	defer func() {
		if err != nil {
			w.release()
			w = nil
		}
	}()
	fd, at, release, err := on.create(bytes)
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
		if err = w.open(on, r, bytes, address); err != nil {
			err = fmt.Errorf("the window of rank %d: %w", r, err)
		}
	}
	_, err = tell(gather, nil, err)
	w.offer.withdraw() // the mappings keep the memory
	return w, err
}

func (w *windows) open(on memory, r, bytes int, address []byte) error {
	fd, err := takeWindow(address)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // likewise
	p, release, err := on.open(fd, bytes)
	if err != nil {
		return err
	}
	w.at[r], w.releases = p, append(w.releases, release)
	return nil
}

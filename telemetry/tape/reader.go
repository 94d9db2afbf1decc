package tape

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// Reader reads a tape as it lies there, of a process that is alive or dead. It is safe for concurrent use.
type Reader struct {
	*file
	mu     sync.Mutex // guards missed
	missed Missed
}

// Open opens one process's tape. The error is a *FormatError if the file is no tape, was cut short or is corrupt, or the file
// system's.
func Open(path string) (*Reader, error) {
	return open(path, false)
}

// OpenCut is Open for a tape that may have been cut short, by a copy that broke off for instance: what is missing behind the header
// reads as if it had never been written. cut says how many bytes there are, and 0 of a whole tape.
func OpenCut(path string) (r *Reader, cut int64, err error) {
	if r, err = open(path, true); err != nil {
		return nil, 0, err
	}
	return r, r.cut, nil
}

func open(path string, partial bool) (*Reader, error) {
	t, err := openFile(path, os.O_RDONLY, partial)
	if err != nil {
		return nil, err
	}
	return &Reader{file: t}, nil
}

// OpenDir opens all tapes in a job's folder, in the order of their names. It returns those that can be read, and an error
// that joins what is wrong with the others. Who calls it closes the readers in either case.
func OpenDir(dir string) ([]*Reader, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	var readers []*Reader
	var errs []error
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".tape" {
			continue
		}
		r, err := Open(filepath.Join(dir, entry.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		readers = append(readers, r)
	}
	return readers, errors.Join(errs...)
}

// Path is the file's name, as it was given to Open.
func (r *Reader) Path() string { return r.path }

// Header is what the tape says of its process now.
func (r *Reader) Header() Header { return r.header() }

// Liveness looks the process up that wrote the tape.
func (r *Reader) Liveness() process.Liveness { return r.process.Liveness() }

// Slots returns the live communicators: of a dead process, those that were live when it died. What can't be read is left out;
// AppendSlots says why.
func (r *Reader) Slots() []Slot {
	slots, _ := r.appendSlots(nil)
	return slots
}

// AppendSlots appends the live communicators to slots, each as one consistent moment. Corrupt ones are left out, and in the error.
func (r *Reader) AppendSlots(slots []Slot) ([]Slot, error) { return r.appendSlots(slots) }

// AppendTallies appends what the tape's writer counted. Corrupt tallies are left out, and in the error, a *FormatError each.
func (r *Reader) AppendTallies(tallies []Tally) ([]Tally, error) { return r.appendTallies(tallies) }

// Events yields all records that are still in the rings, in order: what one goroutine wrote earlier comes earlier. If the file can't be
// read to its end, the last pair has the error. Of a live process it yields what is there when it comes to the end.
func (r *Reader) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		h, err := newHistory(r.file)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.missed = h.missed()
		}()
		for {
			ev, err := h.step()
			if err != nil {
				yield(Event{}, err)
				return
			}
			if ev == nil || !yield(*ev, nil) {
				return
			}
		}
	}
}

// Missed counts the records that were gone or torn when the last Events came to them.
func (r *Reader) Missed() Missed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missed
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

package tape

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Header is what a tape says of its process.
type Header struct {
	Format                               uint32
	PID                                  int
	BootID, Host, Job                    string
	Program, Version                     string
	Slots, LifeRecords, OpRecords        int
	Closed                               bool // the writer closed the tape cleanly
	CreatedMono, Mono, CreatedWall, wall int64
}

// Wall turns a time of the tape (CLOCK_MONOTONIC, ns) into a time of day.
func (h Header) Wall(mono int64) time.Time { return time.Unix(0, h.wall+(mono-h.Mono)) }

// Event is one record of a tape.
type Event struct {
	Comm       CommInfo // whose; a zero ID if the tape does not know any more
	Slot       int      // of the in-flight table, -1 if the table was full
	Generation uint32   // of the slot; unique to the communicator in its process
	IsLife     bool     // Life is set, else Op
	Life       LifeRecord
	Op         OpRecord
}

// Missed counts the records that a reader could not read.
type Missed struct{ Life, Op uint64 }

// The ends of a tape that is followed.
var (
	ErrClosed = errors.New("tape: the writer closed the tape")
	ErrDied   = errors.New("tape: the writer's process ended without closing the tape")
)

// Reader reads a tape as it lies there, of a live process or a dead one.
type Reader struct{}

// Open opens one process's tape.
func Open(path string) (*Reader, error) { return nil, errors.New("tape: not on this branch yet") }

// OpenDir opens all tapes of a job's folder, in the order of their names.
func OpenDir(dir string) ([]*Reader, error) { return nil, errors.New("tape: not on this branch yet") }

// Header is what the tape says of its process now.
func (r *Reader) Header() Header { return Header{} }

// Slots returns the live communicators.
func (r *Reader) Slots() []Slot { return nil }

// Events yields all records that are still in the rings, in order.
func (r *Reader) Events() iter.Seq2[Event, error] { return func(func(Event, error) bool) {} }

// Missed counts the records that were gone when Events came to them.
func (r *Reader) Missed() Missed { return Missed{} }

// Close closes the file.
func (r *Reader) Close() error { return nil }

// FollowOptions says how a tape is followed. The zero value is a good one.
type FollowOptions struct {
	FromNow bool          // leave out what was on the tape before
	Tick    time.Duration // how late an operation's record may come, at most; 20 ms if zero
}

// Follower reads a tape while it is written, in the same process or another.
type Follower struct{}

// Follow follows the tape at path until ctx ends.
func Follow(ctx context.Context, path string, opts FollowOptions) (*Follower, error) {
	return nil, errors.New("tape: not on this branch yet")
}

// Next waits for the next event. After the last one it returns ErrClosed or ErrDied.
func (f *Follower) Next(ctx context.Context) (Event, error) { return Event{}, ErrClosed }

// Read waits until there is at least one event and fills events with as many as there are now.
func (f *Follower) Read(ctx context.Context, events []Event) (int, error) { return 0, ErrClosed }

// Header is what the tape says of its process now.
func (f *Follower) Header() Header { return Header{} }

// Slots returns the live communicators.
func (f *Follower) Slots() []Slot { return nil }

// Missed counts the records that were gone before they could be read.
func (f *Follower) Missed() Missed { return Missed{} }

// Close ends the following; a Next that waits returns.
func (f *Follower) Close() error { return nil }

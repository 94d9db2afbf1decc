package tape

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kept is the tape of another process, on which this process sets header fields: for a process without telemetry, those
// that a process with telemetry sets itself; for a dead one, that its spans were sent.
type Kept struct{ *Reader }

// OpenKept opens a tape that this user may write to. Errors are those of Open.
func OpenKept(path string) (*Kept, error) {
	t, err := openFile(path, os.O_RDWR, false)
	if err != nil {
		return nil, err
	}
	return &Kept{t}, nil
}

// ErrClaimed is the error of OpenClaim while another reader has the claim.
var ErrClaimed = errors.New("tape: another process is sending the spans that are left on it")

// OpenClaim is OpenKept for the tape of a dead process, locked by the one reader that sends the spans that the process
// did not send. It does not wait. Close, or the end of the reader's process, releases the claim. Only with the claim,
// check whether the process is dead and what is left to be sent: another reader may have released its claim a moment
// ago.
func OpenClaim(path string) (*Kept, error) {
	k, err := OpenKept(path)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(k.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return k, nil
	}
	_ = k.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrClaimed
	}
	return nil, fmt.Errorf("tape: claim %s: %w", path, err)
}

// AllExported is Header.Exported of a dead process all of whose spans have been sent.
const AllExported = math.MaxInt64

// Sent notes on the tape that all its spans have been sent: AllExported.
func (k *Kept) Sent() error { return k.put(unsafe.Offsetof(changing{}.exported), AllExported) }

// Delivered is Writer.Delivered. A failed write, as to a file that was cut short, is ignored here and below.
func (k *Kept) Delivered(until int64) { _ = k.put(unsafe.Offsetof(changing{}.delivered), until) }

// Exporter is Writer.Exporter.
func (k *Kept) Exporter(number uint64) {
	_ = k.put(unsafe.Offsetof(changing{}.exporter), int64(number))
}

// Numbered sets Header.AgentPID.
func (k *Kept) Numbered(pid int) { _ = k.put(unsafe.Offsetof(changing{}.agentPID), int64(pid)) }

// Resumed is Writer.Resumed.
func (k *Kept) Resumed(paused, since int64, starved time.Duration) {
	_ = k.put(unsafe.Offsetof(changing{}.starved), int64(starved))
	_ = k.put(unsafe.Offsetof(changing{}.paused), paused, since)
}

// put writes words to the changing part of the header, at an offset in it.
func (k *Kept) put(at uintptr, words ...int64) error {
	if _, err := k.f.WriteAt(bytesOf(words), changingAt+int64(at)); err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	return nil
}

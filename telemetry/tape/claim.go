package tape

import (
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AllExported is Header.Exported of a dead process all of whose spans have been sent.
const AllExported = math.MaxInt64

// ErrClaimed is the error of OpenClaim while another reader has the claim.
var ErrClaimed = errors.New("tape: another process is sending the spans that are left on it")

// Claim is a dead process's tape, locked by the one reader that sends the spans that the process did not send. Close,
// or the end of the reader's process, releases it.
type Claim struct{ *Reader }

// OpenClaim claims a tape that this user may write to, without waiting. Check on the Claim, not before, whether the
// process is dead and what is left to be sent: another reader may have released its claim a moment ago.
func OpenClaim(path string) (*Claim, error) {
	t, err := openFile(path, os.O_RDWR, true)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(t.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &Claim{&Reader{file: t}}, nil
	}
	_ = t.f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrClaimed
	}
	return nil, fmt.Errorf("tape: claim %s: %w", path, err)
}

// Sent notes on the tape that all its spans have been sent: AllExported.
func (c *Claim) Sent() error { return c.put(unsafe.Offsetof(changing{}.exported), AllExported) }

// put writes words to the changing part of the header, at an offset in it.
func (t *file) put(at uintptr, words ...int64) error {
	if _, err := t.f.WriteAt(bytesOf(words), changingAt+int64(at)); err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	return nil
}

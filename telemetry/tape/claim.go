package tape

import (
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AllExported is Header.Exported of a dead process whose tape holds no span any more that was not sent.
const AllExported = math.MaxInt64

// ErrClaimed is the error of OpenClaim while another reader has the claim.
var ErrClaimed = errors.New("tape: somebody else sends what is left on it")

// Claim is the tape of a dead process, held by the one reader that sends what the process could not. It is released by
// Close, and by the end of this process.
type Claim struct{ *Reader }

// OpenClaim claims a tape that this user may write to, and never waits. Whether its process is dead, and what is left
// of it to be sent, is to be asked of the Claim: another one may have been released a moment ago.
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

// Sent says on the tape that nothing is left on it to be sent: AllExported.
func (c *Claim) Sent() error { return c.put(unsafe.Offsetof(changing{}.exported), AllExported) }

// put writes words of what changes in the header, from an offset there on.
func (t *file) put(at uintptr, words ...int64) error {
	if _, err := t.f.WriteAt(bytesOf(words), changingAt+int64(at)); err != nil {
		return fmt.Errorf("tape: %w", err)
	}
	return nil
}

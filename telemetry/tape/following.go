package tape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// ErrFollowed is the error of FollowJob while another agent of this host follows the job.
var ErrFollowed = errors.New("tape: another agent on this host follows the job")

// Following is the right to follow a job's tapes on this host, for processes without telemetry of their own. One agent
// has it. The end of the agent's process releases it, however the process ends.
type Following struct {
	f *os.File // a file in the job's folder, locked; hosts that share the folder have one each
}

// followingPrefix begins the names of these lock files; the host's boot id follows it.
const followingPrefix = ".agent-"

// FollowJob takes the right to follow the job whose tapes are in dir, without waiting. The error is ErrFollowed while
// another agent has it.
func FollowJob(dir string) (*Following, error) {
	return followBy(filepath.Join(dir, followingPrefix+process.Self().BootID.String()))
}

func followBy(path string) (*Following, error) {
	// Opening for reading is enough for a lock, so that agents of the folder's owner and of root exclude each other.
	const how = os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(path, how|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		_ = f.Chmod(0o644) // whatever the umask is
	} else if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(path, how|os.O_CREATE, 0o644) // it may be gone by now
	}
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		locked, _ := f.Stat()
		if there, err := os.Stat(path); err == nil && os.SameFile(locked, there) {
			return &Following{f}, nil
		}
		err = unix.EWOULDBLOCK // the last holder removed the file a moment ago
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrFollowed
	}
	return nil, fmt.Errorf("tape: lock %s: %w", path, err)
}

// Close releases the right. A nil Following holds none.
func (f *Following) Close() error {
	if f == nil {
		return nil
	}
	return errors.Join(os.Remove(f.f.Name()), f.f.Close()) // removed while it is locked: nobody else has locked it
}

package tape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// CreateError says why a tape could not be made, and what helps. A program that gets it can go on without a tape: a
// nil *Writer.
type CreateError struct {
	Path    string // the directory or file at fault
	Problem string
	Cure    string
	Err     error // the system's; nil if it had none
}

func (e *CreateError) Error() string {
	text := fmt.Sprintf("tape: %s %s", e.Path, e.Problem)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; " + e.Cure
}

// Unwrap is the system's error.
func (e *CreateError) Unwrap() error { return e.Err }

const elsewhere = "set " + DirVariable + " to a directory of your own"

// createFile makes the tape's file, whole: the name appears when the header is written and the space is reserved. Its
// name is that of the process; what an earlier process of the same name left is moved aside, and never lost.
func createFile(cfg Config) (f *os.File, path string, err error) {
	dir, dirPath, err := openJobDir(cfg)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = unix.Close(dir) }()

	me := process.Self()
	base := fmt.Sprintf("%s-%d", cfg.Host, me.PID)
	temp := fmt.Sprintf(".%s.%d.new", base, Now())
	f, err = fillFile(dir, dirPath, temp, cfg, me)
	if err != nil {
		return nil, "", err
	}
	// Both a hard link and this call give the name only if it is free; no rename does that on every file system.
	defer func() { _ = unix.Unlinkat(dir, temp, 0) }()
	for n := 0; ; n++ {
		name := base + ".tape"
		if n > 0 { // this process has a tape of this name already: tests run several runtimes in one process
			name = fmt.Sprintf("%s.%d.tape", base, n)
		}
		path = filepath.Join(dirPath, name)
		err = unix.Linkat(dir, temp, dir, name, 0)
		if errors.Is(err, unix.EEXIST) {
			mine, asideErr := setAside(dir, dirPath, name, me)
			if asideErr != nil {
				_ = f.Close()
				return nil, "", asideErr
			}
			if !mine {
				n-- // the name is free now
			}
			continue
		}
		if err != nil {
			_ = f.Close()
			return nil, "", &CreateError{path, "can't be created", "if this file system has no hard links, " + elsewhere, err}
		}
		return f, path, nil
	}
}

// openJobDir makes the job's directory as far as it is missing and opens it. From here on names are looked up in what
// was opened and checked, so that nobody can exchange the directory in between.
func openJobDir(cfg Config) (fd int, path string, err error) {
	root, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return -1, "", &CreateError{cfg.Dir, "can't be made an absolute path", elsewhere, err}
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return -1, "", &CreateError{root, "can't be created", cureFor(err), err}
	}
	// Its last element may be a link, if the user named it so; who owns what it leads to is what counts.
	rootFD, err := openDir(unix.AT_FDCWD, root, root, 0)
	if err != nil {
		return -1, "", err
	}
	defer func() { _ = unix.Close(rootFD) }()
	if err := checkDir(rootFD, root, 0o022, "is writable by others"); err != nil {
		return -1, "", err
	}

	path = filepath.Join(root, cfg.Job)
	if err := unix.Mkdirat(rootFD, cfg.Job, 0o700); err != nil && err != unix.EEXIST {
		return -1, "", &CreateError{path, "can't be created", cureFor(err), err}
	}
	fd, err = openDir(rootFD, cfg.Job, path, unix.O_NOFOLLOW)
	if err != nil {
		return -1, "", err
	}
	if err := checkDir(fd, path, 0o077, "is not private"); err != nil {
		_ = unix.Close(fd)
		return -1, "", err
	}
	return fd, path, nil
}

func openDir(at int, name, path string, flags int) (int, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	switch {
	case err == unix.ENOTDIR || err == unix.ELOOP:
		return -1, &CreateError{path, "is not a directory", "move it away, or " + elsewhere, err}
	case err != nil:
		return -1, &CreateError{path, "can't be opened", cureFor(err), err}
	}
	return fd, nil
}

// checkDir refuses a directory in which others could put files, or links, of their own making.
func checkDir(fd int, path string, forbidden uint32, problem string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &CreateError{path, "can't be examined", elsewhere, err}
	}
	if uid := uint32(os.Geteuid()); st.Uid != uid {
		return &CreateError{
			path, fmt.Sprintf("belongs to user %d, and this process runs as user %d", st.Uid, uid),
			elsewhere, nil,
		}
	}
	if st.Mode&forbidden != 0 {
		return &CreateError{
			path, fmt.Sprintf("%s (mode %04o)", problem, st.Mode&0o7777), "chmod 700 it, or " + elsewhere,
			nil,
		}
	}
	return nil
}

func cureFor(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return "free some space, configure a smaller tape, or " + elsewhere + " on a larger file system"
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		return elsewhere + " that is writable"
	default:
		return elsewhere
	}
}

// fillFile makes a file under a temporary name with its space reserved and its header written. Reserved, because a
// mapped file on a full file system kills the process (SIGBUS) when it writes to it; so a full one is an error here
// and now.
func fillFile(dir int, dirPath, name string, cfg Config, me process.ID) (*os.File, error) {
	path := filepath.Join(dirPath, name)
	fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &CreateError{path, "can't be created", cureFor(err), err}
	}
	f := os.NewFile(uintptr(fd), path)
	size := cfg.geometry().size()
	err = reserve(f, size)
	if err == nil {
		_, err = f.WriteAt(encodeHeader(cfg, me), 0)
	}
	if err != nil {
		_ = f.Close()
		_ = unix.Unlinkat(dir, name, 0)
		return nil, &CreateError{dirPath, fmt.Sprintf("has no room for a tape of %d bytes", size), cureFor(err), err}
	}
	return f, nil
}

func reserve(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch err {
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return writeZeros(f, size) // a file system that can only reserve by writing
		}
		return err
	}
}

func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < size; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// setAside moves a file away whose name this process needs, unless it is a tape that this very process writes (mine).
func setAside(dir int, dirPath, name string, me process.ID) (mine bool, err error) {
	path := filepath.Join(dirPath, name)
	if r, err := Open(path); err == nil {
		writer := r.process
		_ = r.Close()
		if writer == me {
			return true, nil
		}
	}
	// Whoever wrote it had our pid, so is dead or in another container. The latter goes on writing to it under its
	// new name.
	aside := fmt.Sprintf("%s.%d.old.tape", name[:len(name)-len(".tape")], time.Now().UnixNano())
	err = unix.Renameat2(dir, name, dir, aside, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS {
		err = unix.Renameat(dir, name, dir, aside)
	}
	if err != nil && err != unix.ENOENT {
		return false, &CreateError{path, "is in the way and can't be moved", "remove it", err}
	}
	return false, nil
}

func encodeHeader(cfg Config, me process.ID) []byte {
	headers := [1]header{{
		static: static{
			version: formatVersion, slots: uint32(cfg.Slots), tallies: uint32(cfg.Tallies),
			lifeRecords: uint32(cfg.LifeRecords), opRecords: uint32(cfg.OpRecords), pid: uint32(me.PID),
			fileSize: uint64(cfg.geometry().size()), startTicks: me.StartTicks, pidSpace: me.PIDSpace, kernelBoot: me.BootID,
			createdMono: Now(), createdWall: time.Now().UnixNano(), rank: int32(cfg.Rank), jobSize: int32(cfg.JobSize),
			slowAfter: int64(cfg.Slow), stallAfter: int64(cfg.Stall),
		},
		changing: changing{state: stateLive},
	}}
	h := &headers[0]
	copy(h.magic[:], magic)
	putText(h.bootID[:], cfg.BootID)
	putText(h.host[:], cfg.Host)
	putText(h.job[:], cfg.Job)
	putText(h.program[:], cfg.Program)
	putText(h.progVersion[:], cfg.Version)
	h.check = check(formatVersion, wordsOf(&h.static))
	return bytesOf(headers[:])
}

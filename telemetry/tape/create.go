package tape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

const elsewhere = "set " + DirVariable + " to a directory of your own"

// refusal is the error of a tape that could not be made at path, with a cure. err is the system's error, nil if none.
type refusal struct {
	path, problem, cure string
	err                 error
}

func refused(path, problem, cure string, err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		err = errno // without a path of its own
	}
	return &refusal{path, problem, cure, err}
}

func (r *refusal) Error() string { return "tape: " + r.why() + "; " + r.cure }
func (r *refusal) Unwrap() error { return r.err }

// why is the text without the cure.
func (r *refusal) why() string {
	if r.err == nil {
		return r.path + " " + r.problem
	}
	return r.path + " " + r.problem + ": " + r.err.Error()
}

// createFile makes the tape's file. The file gets its name once its header is written and its space reserved. An
// earlier process's file of the same name is renamed, never lost.
func createFile(cfg Config) (f *os.File, path string, err error) {
	dir, err := openJobDir(cfg)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = dir.Close() }()

	me := process.Self()
	base := fmt.Sprintf("%s-%d", cfg.Host, me.PID)
	temp := fmt.Sprintf(".%s.%d.new", base, Now())
	// A hard link is made only if the name is free; rename can't promise that on every file system.
	defer func() { _ = dir.Remove(temp) }()
	f, err = fillFile(dir, temp, cfg, me)
	if err != nil {
		return nil, "", err
	}
	for n := 0; ; {
		name := base + ".tape"
		if n > 0 { // this process has a tape of this name already: tests run several runtimes in one process
			name = fmt.Sprintf("%s.%d.tape", base, n)
		}
		path = filepath.Join(dir.Name(), name)
		switch err = dir.Link(temp, name); {
		case err == nil:
			return f, path, nil
		case !errors.Is(err, fs.ErrExist):
			err = refused(path, "can't be created", "if this file system has no hard links, "+elsewhere, err)
		case writtenBy(path, me):
			n++
			continue
		default:
			// Its writer had this pid: it is dead, or in another container, where it goes on writing the renamed file.
			aside := fmt.Sprintf("%s.%d.old.tape", strings.TrimSuffix(name, ".tape"), time.Now().UnixNano())
			if err = dir.Rename(name, aside); err == nil || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			err = refused(path, "is in the way and can't be moved", "remove it", err)
		}
		_ = f.Close()
		return nil, "", err
	}
}

// CheckJob says what is wrong with the name of a job.
func CheckJob(job string) error {
	if problem := badName(job); problem != "" {
		return fmt.Errorf("tape: a job can't be called %q: that becomes a file's name and %s", job, problem)
	}
	return nil
}

// MakeJob makes the directory of a job's tapes, as Create does, before the job's processes start. The error says what
// is wrong with it, or with dir, and how to fix it.
func MakeJob(dir, job string) error {
	if err := CheckJob(job); err != nil {
		return err
	}
	root, err := openJobDir(Config{Dir: dir, Job: job})
	if err != nil {
		return err
	}
	return root.Close()
}

// openJobDir makes the job's directory if it is missing and opens it, so that nobody can replace it afterwards.
func openJobDir(cfg Config) (*os.Root, error) {
	path, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, refused(cfg.Dir, "can't be made an absolute path", elsewhere, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, refused(path, "can't be created", cureFor(err), err)
	}
	// The path may be a link; what counts is the owner of the directory that it leads to.
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, refused(path, "can't be opened", cureFor(err), err)
	}
	defer func() { _ = root.Close() }()
	if err := checkDir(root, 0o022, "is writable by others"); err != nil {
		return nil, err
	}

	path = filepath.Join(path, cfg.Job)
	if err := root.Mkdir(cfg.Job, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, refused(path, "can't be created", cureFor(err), err)
	}
	if info, err := root.Lstat(cfg.Job); err == nil && !info.IsDir() {
		return nil, refused(path, "is not a directory", "move it away, or "+elsewhere, nil)
	}
	dir, err := root.OpenRoot(cfg.Job)
	if err != nil {
		return nil, refused(path, "can't be opened", cureFor(err), err)
	}
	if err := checkDir(dir, 0o077, "is not private"); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// checkDir refuses a directory in which others could create files or links.
func checkDir(dir *os.Root, forbidden uint32, problem string) error {
	info, err := dir.Stat(".")
	if err != nil {
		return refused(dir.Name(), "can't be examined", elsewhere, err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if uid := uint32(os.Geteuid()); st.Uid != uid {
		problem = fmt.Sprintf("belongs to user %d, and this process runs as user %d", st.Uid, uid)
		return refused(dir.Name(), problem, elsewhere, nil)
	}
	if uint32(st.Mode)&forbidden != 0 {
		problem = fmt.Sprintf("%s (mode %04o)", problem, st.Mode&0o7777)
		return refused(dir.Name(), problem, "chmod 700 it, or "+elsewhere, nil)
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

// fillFile makes a file under a temporary name with its header written and its space reserved: writing to a mapping for
// which a full file system has no room would kill the process (SIGBUS).
func fillFile(dir *os.Root, name string, cfg Config, me process.ID) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, refused(filepath.Join(dir.Name(), name), "can't be created", cureFor(err), err)
	}
	size := cfg.geometry().size()
	err = reserve(f, size)
	if err == nil {
		_, err = f.WriteAt(encodeHeader(cfg, me), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, refused(dir.Name(), fmt.Sprintf("has no room for a tape of %d bytes", size), cureFor(err), err)
	}
	return f, nil
}

func reserve(f *os.File, size int64) error {
	for {
		switch err := fallocate(f, size); {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS): // it can only be reserved by writing
			_, err := f.Write(make([]byte, size))
			return err
		default:
			return err
		}
	}
}

// writtenBy tells whether path is a tape that the process me writes.
func writtenBy(path string, me process.ID) bool {
	r, err := Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = r.Close() }()
	return r.process == me
}

func encodeHeader(cfg Config, me process.ID) []byte {
	now, seen := Now(), int64(0)
	if cfg.Watched {
		seen = now
	}
	headers := [1]header{{
		static: static{
			version: formatVersion, slots: uint32(cfg.Slots), tallies: uint32(cfg.Tallies),
			lifeRecords: uint32(cfg.LifeRecords), opRecords: uint32(cfg.OpRecords), pid: uint32(me.PID),
			fileSize: uint64(cfg.geometry().size()), startTicks: me.StartTicks, pidSpace: me.PIDSpace,
			kernelBoot:  me.BootID,
			createdMono: now, createdWall: time.Now().UnixNano(), rank: int32(cfg.Rank), jobSize: int32(cfg.JobSize),
			slowAfter: int64(cfg.Slow), stallAfter: int64(cfg.Stall),
			marked: uint32(cfg.counted), devices: uint32(cfg.Devices),
		},
		changing: changing{state: stateLive, seen: seen},
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

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// seals permanently fix the size of an inbox.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// memfdName is the name of the files in /proc.
const memfdName = "carillon"

// CreateMemory makes an in-memory file that begins with header and has a permanently fixed size. The caller closes fd.
func CreateMemory(header []byte, size int64) (fd int, err error) {
	fd, err = unix.MemfdCreate(memfdName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("create shared memory: %w", err)
	}
	if err := prepare(fd, header, size); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func prepare(fd int, header []byte, size int64) error {
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("give shared memory %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal shared memory: %w", err)
	}
	if _, err := unix.Pwrite(fd, header, 0); err != nil {
		return fmt.Errorf("write to shared memory: %w", err)
	}
	return nil
}

// OpenMemory maps the file that a process of this user made with CreateMemory, with this header and size, and holds
// open as fd.
func OpenMemory(pid, fd int, header []byte, size int64) (*Memory, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	// Check before opening: opening a device or a pipe would have side effects.
	if target, err := os.Readlink(path); err != nil {
		return nil, err
	} else if !strings.HasPrefix(target, "/memfd:"+memfdName) {
		return nil, fmt.Errorf("%s is %s and not shared memory of Carillon's", path, target)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }() // the mapping stays
	if err := examine(fd, size, header); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return MapMemory(fd, size)
}

// examine checks that fd is a file made by CreateMemory with the wanted header.
func examine(fd int, size int64, want []byte) error {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("read seals: %w", err)
	}
	if got&seals != seals {
		return fmt.Errorf("has seals %#x, wanted %#x", got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Size != size {
		return fmt.Errorf("has %d bytes, wanted %d", st.Size, size)
	}
	if int(st.Uid) != unix.Geteuid() {
		return fmt.Errorf("belongs to user %d, not to %d", st.Uid, unix.Geteuid())
	}
	have := make([]byte, len(want))
	if _, err := unix.Pread(fd, have, 0); err != nil {
		return fmt.Errorf("read header: %w", err)
	}
	if !bytes.Equal(have, want) {
		return errors.New("is of another communicator or rank")
	}
	return nil
}

// free returns the memory of a mapped part to the system.
func free(mem []byte) { _ = unix.Madvise(mem, unix.MADV_REMOVE) }

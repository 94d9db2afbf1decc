package tape

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// A tape takes at most one part in so many of what is free on its file system: others need /dev/shm, too, and in a
// container it is small.
const roomShare = 8

// smaller is by how much each next size is less that is tried where there is no room.
const smaller = 4

// jobTapes is for how many tapes MakeRoom makes room: a job has one for each GPU of a machine.
const jobTapes = 8

// Make is Create for a process that would rather have a smaller tape, or one elsewhere, than none. In each of dirs in
// turn, in place of cfg.Dir, it looks for room: an eighth of what is free there. If there is too little, it removes the
// tapes of dead jobs, the oldest first, from the first of these directories, but for those of the spare jobs that wrote
// last; a negative spare keeps all. If there is too little still, it takes a quarter of the size, a 16th, a 64th.
//
// less says in a sentence what is not as cfg asks for, elsewhere whether the tape is not in the first directory. The
// error says why none serves; a program that gets it can go on with a nil Writer.
func Make(cfg Config, dirs []string, spare int) (w *Writer, less string, elsewhere bool, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, "", false, err
	}
	whole := cfg.fit().geometry().size()
	var problems []string
	for i, dir := range dirs {
		cfg.Dir = dir
		if i == 0 && spare >= 0 {
			_, _ = sweepJobs(dir, spare, func() bool { return hasRoom(dir, whole) }) // it shows in the room
		}
		w, problem := makeIn(cfg, whole)
		if w != nil {
			if size := w.length; size < whole {
				problems = append(problems, fmt.Sprintf("it has %s instead of %s, as %s has %s free",
					text(size), text(whole), dir, text(free(dir))))
			}
			return w, strings.Join(problems, "; "), i > 0, nil
		}
		problems = append(problems, problem)
	}
	return nil, "", false, errors.New("tape: " + strings.Join(problems, "; "))
}

// MakeRoom is for a job whose processes remove no tapes themselves. If there is too little room in dir for 8 tapes of
// full size, it removes those of dead jobs as Make does.
func MakeRoom(dir string, spare int) error {
	whole := Config{}.fit().geometry()
	whole.marked = maxMarked
	_, err := sweepJobs(dir, spare, func() bool { return hasRoom(dir, whole.size()*(jobTapes-1+roomShare)/roomShare) })
	return err
}

// makeIn makes a tape in cfg.Dir, of a size for which there is room; or says why it can't.
func makeIn(cfg Config, size int64) (w *Writer, problem string) {
	problem = fmt.Sprintf("%s has no room: %s free", cfg.Dir, text(free(cfg.Dir)))
	for ; size >= MinSize/2; size = size/smaller + headerSize {
		if !hasRoom(cfg.Dir, size) {
			continue
		}
		cfg.Size = max(size, MinSize)
		w, err := Create(cfg)
		if err == nil {
			return w, ""
		}
		problem = err.Error()
		if why := (*refusal)(nil); errors.As(err, &why) {
			problem = why.why()
		}
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			break
		}
	}
	return nil, problem
}

func text(bytes int64) string { return humanize.IBytes(uint64(bytes)) }

// hasRoom tells whether there is room for a tape in a directory, which need not exist.
func hasRoom(dir string, size int64) bool { return free(dir)/roomShare >= size }

// free is how many bytes are free to this user on the file system of a directory, which need not exist; as many as
// there can be if that isn't known.
func free(dir string) int64 {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	for errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &fs)
	}
	if err != nil {
		return math.MaxInt64
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // their types differ by system
}

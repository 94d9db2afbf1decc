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

// roomShare bounds a tape to an eighth of the free space of its file system: other programs need /dev/shm too, and it
// is small in a container.
const roomShare = 8

// smaller is the factor from one tape size to the next smaller one, used if there is too little room.
const smaller = 4

// jobTapes is the number of tapes that MakeRoom makes room for: a job has one for each GPU of a machine.
const jobTapes = 8

// Make is Create for a process that prefers a smaller tape, or one in another directory, to none. It tries the dirs in
// turn, instead of cfg.Dir. A tape may take an eighth of the free space there. If that is too little, Make first
// removes the tapes of dead jobs from the first directory, the oldest first, except for those of the spare most
// recently written jobs; a negative spare removes none. Then it tries a quarter of the size, a 16th and a 64th.
//
// less says in a sentence what differs from cfg. elsewhere tells whether the tape is outside the first directory. The
// error says why every directory failed; a program that gets it can go on with a nil Writer.
func Make(cfg Config, dirs []string, spare int) (w *Writer, less string, elsewhere bool, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, "", false, err
	}
	whole := cfg.fit().geometry().size()
	var problems []string
	for i, dir := range dirs {
		cfg.Dir = dir
		if i == 0 && spare >= 0 {
			_, _ = sweepJobs(dir, spare, func() bool { return hasRoom(dir, whole) }) // an error shows as no room
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

// MakeRoom removes the tapes of dead jobs as Make does, if dir has too little room for 8 tapes of full size. It is for
// jobs whose processes remove no tapes themselves.
func MakeRoom(dir string, spare int) error {
	whole := Config{}.fit().geometry()
	whole.marked = maxMarked
	_, err := sweepJobs(dir, spare, func() bool { return hasRoom(dir, whole.size()*(jobTapes-1+roomShare)/roomShare) })
	return err
}

// makeIn makes a tape in cfg.Dir, as large as there is room for, or says why it can't.
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

// hasRoom tells whether a directory, which need not exist, has room for a tape.
func hasRoom(dir string, size int64) bool { return free(dir)/roomShare >= size }

// free is the number of bytes that this user can take on the file system of a directory, which need not exist;
// math.MaxInt64 if that is unknown.
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

package node

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/dustin/go-humanize"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Tape says whether a process has a flight recorder.
type Tape string

// The choices.
const (
	TapeOn       Tape = "on"       // as large as there is room, perhaps elsewhere; none without room
	TapeOff      Tape = "off"      // none
	TapeRequired Tape = "required" // in its own directory, or the process doesn't start
)

// Size is a number of bytes; as text, with its unit: "1MiB".
type Size int64

// parseSize reads a Size.
func parseSize(text string) (Size, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0, errors.New("want a size such as 1MiB")
	}
	return Size(n), nil
}

// newTape makes the process's tape; nil if it is switched off, or can't be made: a job also runs without it.
func newTape(s *settings) (*tape.Writer, error) {
	if s.Tape == TapeOff {
		return nil, nil //nolint:nilnil // a nil Writer is the tape switched off
	}
	cfg := tape.Config{
		Size: int64(s.TapeSize), Job: s.World.Job, Rank: s.World.Rank, JobSize: s.World.Size, BootID: s.Fabric.HostID,
		Version: Version(), Slow: s.kept(), Stall: s.StallThreshold, Devices: s.TapeDevices,
		Watched: s.StallThreshold != 0,
	}
	if _, err := os.Stat("/dev/nvidiactl"); err == nil || s.Device != nil {
		cfg.Devices = cmp.Or(cfg.Devices, 16)
	}
	if s.logsOperations() {
		cfg.SampleEvery = 1
	}
	dirs := tape.Dirs(s.TapeDir)
	if s.Tape == TapeRequired {
		dirs = dirs[:1]
	}
	w, less, elsewhere, err := tape.Make(cfg, dirs, s.sweepTapes(dirs[0]))
	switch {
	case err != nil && s.Tape == TapeRequired:
		return nil, fmt.Errorf(
			"%w (CARILLON_TAPE_DIR chooses another directory, CARILLON_TAPE=on does with less, or without)", err,
		)
	case err != nil:
		s.Tape = TapeOff // for the other parts
		s.Log.Warn("there is no tape: the process runs, and nothing shows what its communicators do "+
			"(CARILLON_TAPE_DIR chooses another directory)", "error", err)
	case elsewhere:
		s.Log.Warn("the tape is in another directory", "tape", w.Path(), "reason", less)
	case less != "":
		s.Log.Info("the tape is smaller, and forgets sooner", "tape", w.Path(), "reason", less)
	}
	return w, nil
}

// sweepTapes removes the tapes of older jobs from the folder of the job's tapes, which may be in memory; only one
// process of the host does so. It returns how many jobs keep their tapes if there is too little room; a negative number
// is all.
func (s *settings) sweepTapes(dir string) (spare int) {
	keep, spare, _ := tape.ParseKeep(s.TapeKeep, s.TapeDir != "") // Validate has refused a text that is no number
	if keep >= 0 && s.World.LocalRank <= 0 {
		if _, err := tape.SweepJobs(dir, keep); err != nil {
			s.Log.Warn("tapes of older jobs could not be removed", "error", err)
		}
	}
	return spare
}

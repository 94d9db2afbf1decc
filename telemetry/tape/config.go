package tape

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// DirVariable is the environment variable that DefaultDir obeys.
const DirVariable = "CARILLON_TAPE_DIR"

// Config describes a process's tape: its file, its size and its process. The zero Config is valid: a tape of 6.4 MiB.
type Config struct {
	// Dir holds the jobs' folders; DefaultDir() if empty. It is made if it is missing. It must belong to this user and
	// be writable by nobody else.
	Dir string
	// Job is the job's name and the name of its folder in Dir; "default" if empty. At most 63 bytes.
	Job string
	// Rank and JobSize are the process's rank in the job, -1 if it is unknown, and how many ranks the job has. If
	// JobSize is 0 both are unknown.
	Rank, JobSize int
	// Host is part of the file's name; os.Hostname() if empty. At most 63 bytes.
	Host string
	// BootID identifies the host's boot, and so its monotonic clock; the kernel's boot id if empty. At most 39 bytes.
	BootID string
	// Program and Version name the program that writes the tape; the executable's name and no version if empty. At most
	// 63 and 39 bytes are kept.
	Program, Version string

	// Size is the most bytes that the tape takes, at least MinSize; 6.4 MiB if 0. The defaults of the next four fields
	// are halved, or doubled, until the tape fits.
	Size int64
	// Slots is how many communicators can be live at a time in the in-flight table; 512 if 0, at most 16,384. A slot is
	// 512 bytes. Further communicators are only in the rings.
	Slots int
	// LifeRecords is the size of the life ring in records of 64 bytes; 8,192 if 0, at most 1,048,576. It is rounded
	// up to a power of two. A moment of an act takes 1 record, or about 4 with call site and span context; with a long
	// error text up to 36.
	LifeRecords int
	// OpRecords is the size of the op ring in records of 64 bytes; 65,536 if 0, at most 16,777,216. It is rounded up to
	// a power of two. An operation takes 1 record. If it waits or is called within a span, it takes 1 more for its
	// start, 1 for each change of its phase or of the rank that it waits for, and 1 for the span. Most operations that
	// take 1 record are on the ordinary ring instead, which has a page of 512 bytes, for 8 to 57 operations, for each
	// 32 records here.
	OpRecords int
	// Tallies is how many kinds of operations the writer counts; 1024 if 0, at most 65,536. A tally is 512 bytes. A
	// communicator takes one for each call and class of sizes, and leaves them to the next one of its name. Operations
	// without a tally are on the op ring, and readers count them.
	Tallies int

	// Devices is how many communicators at a time can be on devices that write onto the tape themselves; at most
	// MaxDevices. As many of the first slots take 4 KiB more each.
	Devices int

	// SampleEvery is N if followers get 1 in N ordinary operations, the same ones on all ranks; see Sampled. 0 means
	// DefaultSampleEvery, 1 all; a negative number means none.
	SampleEvery int
	// Slow is the duration from which an operation is not ordinary, even if it never waited; a second if 0.
	Slow time.Duration
	// Stall is the duration from which the process calls an operation stalled, for readers of its tape; 0 if it never
	// does.
	Stall time.Duration
	// Watched sets Header.Watched from the beginning: the process's own telemetry will read the tape, so that no agent
	// follows it.
	Watched bool

	counted int // of the first slots count messages; see fit
}

// Defaults and bounds of the sizes.
const (
	defaultSlots       = 512
	defaultLifeRecords = 8192
	defaultOpRecords   = 65536
	defaultTallies     = 1024
	defaultCounted     = slotBatch
	defaultSlow        = time.Second

	minRing        = 2 * (maxContinue + 1) // a record with the longest tail must not overwrite itself
	maxSlots       = 1 << 14
	maxLifeRecords = 1 << 20
	maxOpRecords   = 1 << 24
	maxTallies     = 1 << 16
	maxFileName    = 63 // of each part
	maxBootID      = 39
)

// DefaultSampleEvery is the default of Config.SampleEvery.
const DefaultSampleEvery = 1024

// DefaultDir is the directory of tapes that all of a user's programs agree on: $CARILLON_TAPE_DIR, or carillon-<uid>
// on the tmpfs at /dev/shm, or, where there is none, in the directory for temporary files.
func DefaultDir() string { return Dirs("")[0] }

// Dirs returns the directories in which a user's tapes may be: first the configured one, which is dir if it is not
// empty, then the fallbacks; see Make.
func Dirs(dir string) (all []string) {
	if dir = cmp.Or(dir, os.Getenv(DirVariable)); dir != "" {
		all = append(all, dir)
	}
	for _, parent := range []string{memoryDir(), os.TempDir()} {
		dir := filepath.Join(parent, fmt.Sprintf("carillon-%d", os.Geteuid()))
		if parent != "" && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return all
}

// Validate reports every field that is out of its bounds.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("tape.Config.%s is %s: %s", field, cut(fmt.Sprint(value), 100), allowed))
		}
	}
	name := func(field, value string) {
		problem := badName(value)
		check(problem == "", field, strconv.Quote(value), "it becomes part of a file's name and "+problem)
	}
	count := func(field string, value, most int) {
		check(value >= 0 && value <= most, field, value, fmt.Sprintf("allowed are 1 to %d, or 0 for the default", most))
	}
	name("Job", c.Job)
	name("Host", c.Host)
	check(len(c.BootID) <= maxBootID, "BootID", strconv.Quote(c.BootID),
		fmt.Sprintf("at most %d bytes are allowed", maxBootID))
	check(!strings.ContainsRune(c.Dir, 0), "Dir", strconv.Quote(c.Dir), "it must not hold a NUL")
	check(c.JobSize >= 0, "JobSize", c.JobSize, "allowed are positive numbers, or 0 if it is unknown")
	check(c.JobSize == 0 || c.Rank >= -1 && c.Rank < c.JobSize, "Rank", c.Rank,
		"allowed are 0 to JobSize-1, or -1 for unknown")
	check(c.Size == 0 || c.Size >= MinSize, "Size", c.Size, fmt.Sprintf("allowed are bytes from %d on, or 0", MinSize))
	count("Slots", c.Slots, maxSlots)
	count("LifeRecords", c.LifeRecords, maxLifeRecords)
	count("OpRecords", c.OpRecords, maxOpRecords)
	count("Tallies", c.Tallies, maxTallies)
	check(c.Devices >= 0 && c.Devices <= MaxDevices, "Devices", c.Devices,
		fmt.Sprintf("allowed are 0 to %d", MaxDevices))
	check(c.Slow >= 0, "Slow", c.Slow, fmt.Sprintf("allowed are positive durations, or 0 for %v", defaultSlow))
	check(c.Stall >= 0, "Stall", c.Stall, "allowed are positive durations, or 0 for never")
	return errors.Join(errs...)
}

// badName says what is wrong with a part of a file's name; empty if nothing is.
func badName(name string) string {
	switch {
	case strings.Contains(name, "/"):
		return "must not hold a slash"
	case strings.HasPrefix(name, "."):
		return "must not begin with a dot"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "must not hold control characters"
	case len(name) > maxFileName:
		return fmt.Sprintf("must have at most %d bytes", maxFileName)
	}
	return ""
}

// complete returns c with its defaults filled in.
func (c Config) complete() (Config, error) {
	c.Dir = cmp.Or(c.Dir, DefaultDir())
	c.Job = cmp.Or(c.Job, "default")
	if c.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("tape: the host's name is unknown (set Config.Host): %w", err)
		}
		c.Host = cut(host, maxFileName)
	}
	c.BootID = cmp.Or(c.BootID, process.Self().BootID.String())
	c.Program = cmp.Or(c.Program, filepath.Base(os.Args[0]))
	if c.JobSize == 0 {
		c.Rank = -1
	}
	c.SampleEvery = cmp.Or(c.SampleEvery, DefaultSampleEvery)
	c.Slow = cmp.Or(c.Slow, defaultSlow)
	return c.fit(), nil
}

// MaxDevices is the most that Config.Devices may be: AppendSlots reads their slots in one batch.
const MaxDevices = slotBatch / 2

// MinSize is the least that Config.Size may be: room for 8 communicators and 1,024 operations.
const MinSize = 128 << 10

// The most doublings and halvings of the fields that are 0.
const mostDoublings, mostHalvings = 4, 6

// fit fills in the fields that are 0, as large as Size allows.
func (c Config) fit() (fits Config) {
	for halvings := -mostDoublings; halvings <= mostHalvings; halvings++ {
		share := func(set, whole, most int) int {
			return cmp.Or(set, min(whole<<mostDoublings>>(halvings+mostDoublings), most))
		}
		fits = c
		fits.Slots = share(c.Slots, defaultSlots, maxSlots)
		fits.Tallies = share(c.Tallies, defaultTallies, maxTallies)
		fits.Devices = min(c.Devices, fits.Slots)
		fits.counted = max(fits.Devices, min(share(0, defaultCounted, maxMarked), fits.Slots))
		fits.LifeRecords = ringSize(share(c.LifeRecords, defaultLifeRecords, maxLifeRecords))
		fits.OpRecords = ringSize(share(c.OpRecords, defaultOpRecords, maxOpRecords))
		if c.Size == 0 && halvings == 0 || c.Size > 0 && fits.geometry().size() <= c.Size {
			break
		}
	}
	return fits
}

func ringSize(n int) int { return 1 << bits.Len(uint(max(n, minRing)-1)) }

func (c Config) geometry() geometry {
	return geometry{
		slots: c.Slots, tallies: c.Tallies, life: c.LifeRecords, op: c.OpRecords, marked: c.counted, devices: c.Devices,
	}
}

package postmortem

import (
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Report is what the tapes of one run of one job tell. Its JSON is stable: fields are added, never renamed. All times
// are the time of day of the first host, in UTC; all durations are in nanoseconds. Texts of the tapes are as they are;
// Write makes them safe for a terminal.
type Report struct {
	Job string `json:"job"`
	// Begin and End are the times of the first and the last record that are still there.
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// Ended is how the job ended, and Findings are the verdicts on it just before, or at Options.At, as the running job
	// would have told them. Empty: all was well.
	Ended    Ending    `json:"ended"`
	Findings []Finding `json:"findings"`
	// Mistakes are the calls that were refused, and communicators that were never destroyed.
	Mistakes []Said `json:"mistakes,omitempty"`
	// Held are verdicts on earlier moments at which operations stalled that ended well later, at most twice MaxHeld.
	Held []Finding `json:"held_up,omitempty"`
	// Processes are in the order of their ranks.
	Processes []Process `json:"processes"`
	// Comms are in the order in which they were made.
	Comms []Comm `json:"communicators"`
	// Done are the operations that ended well, by kind, the kind that took most time first. They are from the ranks'
	// own counters, which miss none whose record was overwritten, but have no times.
	Done []Done `json:"done"`
	// Clocks are the machines' clocks; all times are by the first.
	Clocks []Clock `json:"clocks"`
	// Events are the last events that Options ask for, in the order of the one clock.
	Events []Event `json:"events"`
	// Missed counts the records that were overwritten or torn before they were read.
	Missed uint64 `json:"records_missed"`
	// Run is the run of the job, as rank 0 called it; 0 if no process knows it.
	Run lifecycle.Run `json:"run,omitempty"`
	// Jobs are all that were found, and OtherRuns how many earlier or later runs of this job there are beside this one.
	Jobs      []Job `json:"jobs"`
	OtherRuns int   `json:"other_runs"`
	// Problems say what of the input could not be used or trusted.
	Problems []Problem `json:"problems"`

	procs         []*process
	untaped       []untaped        // processes of this run that left no tape
	failedUntaped *untaped         // for which its launcher ended the job; nil: none
	program       *osprocess.Entry // the end of what carillon attach ran; nil: not known
	stillHung     bool             // something held it up when it was ended from outside, after Findings
	comms         []*comm          // in the order in which they were made
	run           int              // number of Run, from 1
	size          int              // ranks of the job; 0 if unknown
	timed         bool             // the options bound the time
	latest        bool             // of several jobs, this one wrote last
	emptied       []string         // tapes that were truncated to nothing
	at            time.Time        // Options.At, at which the job was judged
}

// Said is an error, and the ranks that had it.
type Said struct {
	Code  string    `json:"code"`
	Text  string    `json:"text"` // the first rank's
	Ranks []int     `json:"ranks"`
	Time  time.Time `json:"time"`            // when the first rank had it
	Times int       `json:"times,omitempty"` // of a mistake: at least so often, and less than twice that
	Site  string    `json:"site,omitempty"`
	First string    `json:"first_site,omitempty"` // of a misuse: where the first such call was made

	least bool // not all of Times have a record, and there may be more
}

// ProcessState is whether a process runs, and else how it ended. The strings are stable.
type ProcessState string

// The states of a process.
const (
	StateClosed  ProcessState = "closed"  // it closed its tape: the program ended in order
	StateExited  ProcessState = "exited"  // it exited without closing its tape, as by os.Exit; see Process.Ended
	StateDied    ProcessState = "died"    // it ended without closing its tape in another way, or an unknown one
	StateAlive   ProcessState = "alive"   // it runs
	StateUnknown ProcessState = "unknown" // it didn't close its tape, and ran where it can't be looked for
)

// Process is one process, by its tape.
type Process struct {
	Rank    int          `json:"rank"`            // in the job; -1 if not known, or if the process is several ranks
	Ranks   []int        `json:"ranks,omitempty"` // of a process that is several ranks, as far as they are known
	Host    string       `json:"host"`
	PID     int          `json:"pid"`
	State   ProcessState `json:"state"`
	Ended   string       `json:"ended,omitempty"` // how, as far as its launcher or another rank knows
	EndedAt time.Time    `json:"ended_at,omitzero"`
	Program string       `json:"program"`
	Version string       `json:"version,omitempty"`
	Tape    string       `json:"tape"`
	Clock   int          `json:"clock"` // in Report.Clocks
	Started time.Time    `json:"started"`
	Last    time.Time    `json:"last"` // of the last thing that it wrote
	Missed  uint64       `json:"records_missed"`
	Doing   []Doing      `json:"doing,omitempty"` // what it is in, or was in when it ended
}

// Doing is a call that has begun and not ended.
type Doing struct {
	Comm   string           `json:"comm"`
	CommID lifecycle.CommID `json:"comm_id"`
	Rank   int              `json:"rank"` // in the communicator
	Call   string           `json:"call"` // "all_reduce", "init" and so on
	Seq    uint64           `json:"seq"`
	What   string           `json:"what"` // size, type, reduction and root, for people
	Phase  string           `json:"phase,omitempty"`
	Since  time.Time        `json:"since"`
	// For is how long at least: until now, the end that others saw, or the last record of any tape.
	For       time.Duration `json:"for_ns"`
	Wait      int           `json:"wait_rank"` // of the communicator; -1 if it doesn't wait for one
	WaitSince time.Time     `json:"wait_since,omitzero"`
	TraceID   string        `json:"trace_id"`

	least bool // For is a lower bound
}

// Comm is one communicator over all its ranks.
type Comm struct {
	ID     lifecycle.CommID `json:"id"`
	Parent lifecycle.CommID `json:"parent"`
	Name   string           `json:"name"`
	Size   int              `json:"size"`
	Nodes  int              `json:"nodes"`
	Engine string           `json:"engine,omitempty"` // "host", "host+cuda", "nccl 2.28.9"
	Made   time.Time        `json:"made"`
	Ranks  []Rank           `json:"ranks"`
	// Absent are the ranks without a part of it on a tape, at most MaxAbsent of them; NumAbsent is how many there are.
	Absent     []int  `json:"absent,omitempty"`
	NumAbsent  int    `json:"absent_total"`
	Acts       []Act  `json:"acts"`
	Operations uint64 `json:"operations"` // the most that any rank completed
	// Captured is the most operations that any rank captured in graphs, whose launches are not seen.
	Captured uint64 `json:"captured,omitempty"`

	unjoined bool // Absent are ranks of known processes, for all that the tapes tell
}

// untaped tells whether there are ranks of processes without a tape.
func (c *Comm) untaped() bool { return c.NumAbsent > 0 && !c.unjoined }

// MaxAbsent is how many absent ranks a Comm names.
const MaxAbsent = 64

// Rank is one rank of a communicator.
type Rank struct {
	Rank    int    `json:"rank"`
	Process int    `json:"process"` // in Report.Processes
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	State   string `json:"state"` // of the communicator, on this rank
	// Place is where it is among the others, and how it sends to other nodes; absent if the tape doesn't tell.
	Place      tape.Place `json:"place,omitzero"`
	Dead       bool       `json:"dead"` // its process ended without ending the communicator
	Operations uint64     `json:"operations"`
	Captured   uint64     `json:"captured,omitempty"` // of these, in graphs, whose launches are not seen
	Begun      uint64     `json:"collectives_begun"`  // number of the last collective that it began
	Ended      uint64     `json:"collectives_ended"`  // and of the last that it ended well
	LastEnd    time.Time  `json:"last_end,omitzero"`  // of an operation
	Doing      *Doing     `json:"doing,omitempty"`
}

// Act is a lifecycle act, over the ranks that took part.
type Act struct {
	Act     string        `json:"act"` // "init", "split" and so on; "operation" for errors that belong to none
	Seq     uint64        `json:"seq"`
	TraceID string        `json:"trace_id,omitempty"`
	Ranks   int           `json:"ranks"`      // that began it
	Open    int           `json:"unfinished"` // of those, that did not end it
	Start   time.Time     `json:"start"`
	Longest time.Duration `json:"longest_ns"` // from start to end on the slowest rank
	Errors  []Said        `json:"errors,omitempty"`
}

// Done is the operations of one kind that ended well: those of communicators of one name and engine, with one call and
// one class of sizes.
type Done struct {
	Comm   string `json:"comm"`
	Engine string `json:"engine,omitempty"`
	Call   string `json:"call"`
	// UpTo is the largest size of the class, in bytes; the smallest is a byte more than a quarter of that. 0 is a
	// barrier's, which has no size; math.MaxUint64 that of the last class.
	UpTo uint64 `json:"up_to_bytes"`
	// Operations, Bytes (of the operations' buffers) and Time are those of all ranks together.
	Operations uint64        `json:"operations"`
	Bytes      uint64        `json:"bytes"`
	Time       time.Duration `json:"time_ns"`
	Mean       time.Duration `json:"mean_ns"`
	// Median and P99 (the 99th percentile) are upper bounds, of a bucket of Durations each; -1 if that has none.
	Median    time.Duration   `json:"median_up_to_ns"`
	P99       time.Duration   `json:"p99_up_to_ns"`
	Durations []DurationCount `json:"durations"`
	// Bandwidth is the mean of the bus bandwidths (see tape.Signature.BusFactor) in bytes per second; 0 if no operation
	// had one.
	Bandwidth  float64          `json:"bus_bandwidth"`
	Bandwidths []BandwidthCount `json:"bus_bandwidths,omitempty"`
	// Ranks are what each rank did of it, in the order of Report.Processes.
	Ranks []DoneBy `json:"ranks"`
}

// DurationCount is how many operations took up to a bound, and longer than the quarter of it.
type DurationCount struct {
	UpTo       time.Duration `json:"up_to_ns"` // -1: longer than all bounds
	Operations uint64        `json:"operations"`
}

// BandwidthCount is how many operations had a bus bandwidth of up to a bound, and more than the quarter of it.
type BandwidthCount struct {
	UpTo       float64 `json:"up_to"` // bytes per second; -1: more than all bounds
	Operations uint64  `json:"operations"`
}

// DoneBy is one rank's part.
type DoneBy struct {
	Rank       int           `json:"rank"` // in the job; -1 if not known, or if the process is several ranks
	Process    int           `json:"process"`
	Operations uint64        `json:"operations"`
	Bytes      uint64        `json:"bytes"`
	Time       time.Duration `json:"time_ns"`
}

// ClockSource says how a clock was aligned with the first. The strings are stable.
type ClockSource string

// The sources, the best first.
const (
	ClockReference  ClockSource = "reference"   // it is the first
	ClockShared     ClockSource = "shared acts" // what ranks of both did together bounds it from both sides
	ClockWallWithin ClockSource = "wall clock, within shared acts"
	ClockWall       ClockSource = "wall clock" // nothing was done together: the times of day are used
)

// Clock is one boot of one machine.
type Clock struct {
	Host      string      `json:"host"`
	Processes int         `json:"processes"`
	Source    ClockSource `json:"source"`
	// Offset is how far its time of day is ahead of the first's, as found by Source.
	Offset time.Duration `json:"offset_ns"`
	// Uncertainty is how far its events may be off, either way; -1 if that is unknown.
	Uncertainty time.Duration `json:"uncertainty_ns"`
}

// Event is one record, for people.
type Event struct {
	Time    time.Time        `json:"time"`
	Rank    int              `json:"rank"`     // in the communicator
	JobRank int              `json:"job_rank"` // in the job; -1 if not known
	Process int              `json:"process"`
	Comm    string           `json:"comm"`
	CommID  lifecycle.CommID `json:"comm_id"`
	Call    string           `json:"call"`
	Seq     uint64           `json:"seq"`
	Stage   string           `json:"stage"`
	Code    string           `json:"code,omitempty"` // of an end or a misuse that is not well
	Text    string           `json:"text"`
}

// Job is one job of those that were found.
type Job struct {
	Name  string    `json:"name"`
	Tapes int       `json:"tapes"`
	Runs  int       `json:"runs"`
	Alive int       `json:"alive"`
	Died  int       `json:"died"`
	Last  time.Time `json:"last"`
}

// Problem says what of the input could not be used or trusted.
type Problem struct {
	Path string `json:"path,omitempty"` // empty: it is not about one file
	Text string `json:"text"`
}

// String is the problem in a line.
func (p Problem) String() string {
	if p.Path == "" {
		return words.Line(p.Text)
	}
	return words.Line(p.Path + " " + p.Text)
}

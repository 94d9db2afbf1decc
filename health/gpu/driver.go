package gpu

import (
	"errors"
	"time"
)

// What a driver says when it doesn't do what was asked.
var (
	errNoDriver = errors.New("no GPU")                // there is no driver, or no GPU: that is well
	errTimeout  = errors.New("nothing happened")      // the wait is over
	errLost     = errors.New("the GPU is lost")       // it doesn't answer, and no call will change that
	errReset    = errors.New("the GPU needs a reset") // it answers nothing else before
)

// driver is what a Monitor asks of NVML. Every call may hang. Two goroutines use it at a time: one waits for events.
type driver interface {
	// open loads and initialises the library. errNoDriver: there is none.
	open() error
	// devices finds the GPUs. It fails only if none can be asked for.
	devices(v visibility) ([]device, error)
	// newEvents makes an empty set of events.
	newEvents() (events, error)
	// turn waits until this Monitor may use events, and what it returns ends that. Hold it for all calls about them.
	turn() (end func())
	// close undoes open.
	close()
}

type device interface {
	// identity asks nothing of the driver.
	identity() identity
	// read reads all that the GPU tells; what it doesn't is left out. errLost and errReset: it tells nothing any more.
	read() (reading, error)
}

type identity struct {
	label    string // NVML's index of the GPU, and the GPU instance for a MIG device
	uuid     string
	name     string
	instance *uint32 // the GPU instance of a MIG device
}

// events is a set of events that the driver announces.
type events interface {
	// add registers what the GPU can announce. A GPU that can announce nothing is left out without an error.
	add(d device) error
	// wait waits for one event, at most for timeout. errTimeout: there was none; errLost: a GPU of the set is lost.
	wait(timeout time.Duration) (event, error)
	// about tells whether the event is about the GPU.
	about(e event, d device) bool
	// free ends the set.
	free()
}

type event struct {
	code     string // CodeXid, CodeECC or CodeCorrected; another one is of no interest
	xid      uint64
	instance uint32 // the GPU instance that it is about, wholeGPU for all
	device   any    // the driver's
}

// wholeGPU is the instance of an event that concerns all of a GPU.
const wholeGPU = 0xFFFFFFFF

// reading is what a GPU tells of itself. nil is what it doesn't tell.
type reading struct {
	Memory      *Memory  `json:"memory,omitempty"`
	ECC         *ECC     `json:"ecc,omitempty"`
	NVLink      *NVLink  `json:"nvlink,omitempty"`
	Throttled   []string `json:"throttled"` // reasons; empty if it is not, nil if it does not tell
	Temperature *uint32  `json:"celsius,omitempty"`
	Rows        *Rows    `json:"row_remap,omitempty"`
}

// Memory is a GPU's memory in bytes, used by whomever.
type Memory struct {
	Used  uint64 `json:"used_bytes"`
	Total uint64 `json:"total_bytes"`
}

// ECC counts memory errors since the driver was loaded.
type ECC struct {
	Corrected   uint64 `json:"corrected"`
	Uncorrected uint64 `json:"uncorrected"`
}

// NVLink tells of a GPU's links.
type NVLink struct {
	Up     []int  `json:"up"`     // the links that are up, by number
	Errors uint64 `json:"errors"` // replays, recoveries and CRC errors of all links, as long as the links count
}

// Rows tells of memory rows that are replaced by spare ones.
type Rows struct {
	Pending bool `json:"pending"` // some are replaced with the next reset
	Failed  bool `json:"failed"`  // there was no spare one
}

// powerCap is the power limit: normal under full load.
const powerCap = "sw_power_cap"

// throttleReasons are the reasons of throttling with their bits in NVML's mask, as label values after nvidia-smi's
// names. What idleness or a user asked for is none.
var throttleReasons = []struct {
	bit  uint64
	name string
}{
	{0x04, powerCap},
	{0x08, "hw_slowdown"},
	{0x10, "sync_boost"},
	{0x20, "sw_thermal"},
	{0x40, "hw_thermal"},
	{0x80, "hw_power_brake"},
}

package gpu

import (
	"errors"
	"time"
)

// The errors of a driver.
var (
	errNoDriver = errors.New("no GPU")                // there is no driver or no GPU, which is fine
	errTimeout  = errors.New("nothing happened")      // no event came in time
	errLost     = errors.New("the GPU is lost")       // it doesn't answer any more
	errReset    = errors.New("the GPU needs a reset") // until then it doesn't answer
)

// driver is NVML as a Monitor uses it. Every call may hang. Two goroutines use it; one of them waits for events.
type driver interface {
	// open loads and initialises the library. errNoDriver: there is none.
	open() error
	// devices finds the GPUs. It fails only if NVML can't list them.
	devices(v visibility) ([]device, error)
	// newEvents makes an empty set of events.
	newEvents() (events, error)
	// turn waits for this Monitor's turn to call NVML about events, which lasts until end is called.
	turn() (end func())
	// close undoes open.
	close()
}

type device interface {
	// identity doesn't call the driver.
	identity() identity
	// read reads all values that the GPU has. errLost and errReset: it no longer has any.
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
	// add registers the GPU's events. A GPU without events is left out; that is no error.
	add(d device) error
	// wait waits for one event, at most for timeout. errTimeout: there was none; errLost: a GPU of the set is lost.
	wait(timeout time.Duration) (event, error)
	// about tells whether the event is about the GPU.
	about(e event, d device) bool
	// free ends the set.
	free()
}

type event struct {
	code     string // CodeXid, CodeECC or CodeCorrected; others are ignored
	xid      uint64
	instance uint32 // the GPU instance that it concerns; wholeGPU for all
	device   any    // the driver's
}

// wholeGPU is the instance of an event that concerns all of a GPU.
const wholeGPU = 0xFFFFFFFF

// reading holds the values of a GPU; values that it doesn't have are nil.
type reading struct {
	Memory      *Memory  `json:"memory,omitempty"`
	ECC         *ECC     `json:"ecc,omitempty"`
	NVLink      *NVLink  `json:"nvlink,omitempty"`
	Throttled   []string `json:"throttled"` // reasons; empty for none, nil if they are not known
	Temperature *uint32  `json:"celsius,omitempty"`
	Rows        *Rows    `json:"row_remap,omitempty"`
}

// Memory is a GPU's memory in bytes, used by any process.
type Memory struct {
	Used  uint64 `json:"used_bytes"`
	Total uint64 `json:"total_bytes"`
}

// ECC counts memory errors since the driver was loaded.
type ECC struct {
	Corrected   uint64 `json:"corrected"`
	Uncorrected uint64 `json:"uncorrected"`
}

// NVLink is the state of a GPU's links.
type NVLink struct {
	Up     []int  `json:"up"`     // the numbers of the links that are up
	Errors uint64 `json:"errors"` // replays, recoveries and CRC errors of all links
}

// Rows is the state of the replacement of memory rows by spare ones.
type Rows struct {
	Pending bool `json:"pending"` // the next reset replaces some
	Failed  bool `json:"failed"`  // there was no spare one
}

// powerCap is throttling by the power limit, which is normal under full load.
const powerCap = "sw_power_cap"

// throttleReasons are the reasons of throttling with their bits in NVML's mask; label values are nvidia-smi's names.
// Idleness and a user's settings are left out.
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

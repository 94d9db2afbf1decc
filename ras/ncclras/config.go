package ncclras

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
)

// DefaultAddress is where NCCL's RAS answers if NCCL_RAS_ADDR doesn't say otherwise.
const DefaultAddress = "localhost:28028"

// Config says which NCCL a Client asks, and what it must not do.
type Config struct {
	// Version is the NCCL version of the job's processes, from their tapes. It decides what may be asked. Required.
	Version Version
	// Ranks is the number of ranks of the job; 0 if it isn't known, which counts as a large number.
	Ranks int
	// Quiet tells whether, as far as this node knows, no communicator of the job is being created or destroyed. Nothing
	// is asked while it is false. It is called from any goroutine, and must not block.
	Quiet func() bool
	// Dir is the job's private folder, shared by all its processes on this host. The process that holds a lock on it
	// has the node's connection.
	Dir string

	// Address is host:port of the RAS socket. The default is the variable NCCL_RAS_ADDR of this process, or else
	// DefaultAddress.
	Address string
	// Accept are the numbers of the Bugs whose risk is accepted.
	Accept []int
}

// withDefaults fills in what is left open.
func (c Config) withDefaults() Config {
	c.Address = cmp.Or(c.Address, os.Getenv("NCCL_RAS_ADDR"), DefaultAddress)
	c.Accept = slices.Clone(c.Accept)
	return c
}

// Validate says what is wrong with the configuration, if anything is.
func (c Config) Validate() error {
	c = c.withDefaults()
	bad := func(field string, value any, want string) error {
		return fmt.Errorf("ncclras: Config.%s is %v; want %s", field, value, want)
	}
	if c.Version == (Version{}) {
		return bad("Version", c.Version, "the version of the job's NCCL")
	}
	if c.Ranks < 0 || c.Ranks > maxRanks {
		return bad("Ranks", c.Ranks, fmt.Sprintf("0 to %d", maxRanks))
	}
	if c.Quiet == nil {
		return bad("Quiet", "nil", "a function that tells whether communicators are being made")
	}
	if !filepath.IsAbs(c.Dir) {
		return bad("Dir", fmt.Sprintf("%q", c.Dir), "the absolute path of the job's private folder")
	}
	if _, port, err := net.SplitHostPort(c.Address); err != nil || port == "" {
		return bad("Address", fmt.Sprintf("%q", c.Address), "host:port, as in NCCL_RAS_ADDR")
	}
	for _, issue := range c.Accept {
		if !slices.Contains(Issues(), issue) {
			return bad("Accept", c.Accept, fmt.Sprintf("some of %v", Issues()))
		}
	}
	return nil
}

package fabric

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillon-rt/carillon/runtime/door"
)

// MaxHostID is the most bytes of Config.HostID.
const MaxHostID = 64

// Config says how the ranks of this process reach others. The zero Config is a good one.
type Config struct {
	// HostID tells hosts apart: ranks with the same one may share memory. Empty means the kernel's boot id. Giving the
	// processes of one machine different ones makes them nodes of their own, which then speak TCP.
	HostID string

	// DisableP2P keeps ranks of one process from reading each other's memory (NCCL_P2P_DISABLE): they use shared
	// memory, as ranks of different processes do.
	DisableP2P bool

	// DisableSHM keeps ranks of one host from using shared memory (NCCL_SHM_DISABLE): they use TCP.
	DisableSHM bool

	// DisablePXN keeps ranks from sending to other nodes through another rank of theirs (NCCL_PXN_DISABLE): each pair
	// of ranks has a connection. One rank that has it disables it for all.
	DisablePXN bool

	// SocketIfname chooses the network interface to listen on, as NCCL_SOCKET_IFNAME does: a list of prefixes
	// separated by commas; "=" before the list asks for exact names, "^" excludes. Empty means the first interface that
	// is up and has an address, loopback and container bridges last.
	SocketIfname string

	// Wire is how what goes between hosts, all of it over TCP, is protected; all ranks must have the same. Whatever it
	// is, both ends of a connection have proved that they have the communicator's secret. What ranks of one host have
	// in shared memory is the kernel's to protect.
	Wire door.Wire

	// Keepalive is after how long a TCP peer whose host does not answer any more (a cut cable, a lost power supply)
	// counts as unreachable; of processes that end, their kernel tells at once. 0 means 10 s; at least 2 s.
	Keepalive time.Duration

	// Log is told of strangers at the port, once in 30 seconds at most. nil is slog.Default.
	Log *slog.Logger `json:"-"`
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if len(c.HostID) > MaxHostID {
		errs = append(errs, fmt.Errorf("HostID has %d bytes; at most %d are allowed", len(c.HostID), MaxHostID))
	}
	if c.Keepalive != 0 && c.Keepalive < 2*time.Second {
		errs = append(errs, fmt.Errorf("keepalive is %v; 0 (for 10s) or at least 2s are allowed", c.Keepalive))
	}
	if c.Wire > door.Encrypt {
		errs = append(errs,
			fmt.Errorf("wire is %d; door.Plain, door.Authenticate and door.Encrypt are allowed", c.Wire))
	}
	if _, err := parseIfname(c.SocketIfname); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

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

// The times that Config.Keepalive may be: probes are whole seconds apart.
const (
	DefaultKeepalive = 10 * time.Second
	MinKeepalive     = 2 * time.Second
)

// Config says how the ranks of this process reach others. The zero Config is a good one. The tags name the variables
// that package node reads.
type Config struct {
	// HostID identifies the host: processes with the same one share memory. Different ones make several "nodes" of one
	// machine, for tests. Default: the kernel's boot id.
	HostID string `env:"CARILLON_HOSTID" nccl:"NCCL_HOSTID"`
	// DisableP2P keeps ranks of one process from reading each other's memory directly, and GPUs from accessing each
	// other's. The ranks use shared memory, as those of different processes do.
	DisableP2P bool `env:"NCCL_P2P_DISABLE"`
	// DisableSHM keeps ranks of one host from sharing memory: they use TCP.
	DisableSHM bool `env:"NCCL_SHM_DISABLE"`

	// DisablePXN keeps ranks from sending to other nodes through another rank of theirs: each pair of ranks has a
	// connection, in place of one for each other node. One rank that has it disables it for all.
	DisablePXN bool `env:"NCCL_PXN_DISABLE"`
	// SocketIfname chooses the network interfaces for TCP, in NCCL's syntax: `eth`, `=eth0`, `^docker`. Default: the
	// first that is up and has an address, bridges of containers and loopback last.
	SocketIfname string `env:"NCCL_SOCKET_IFNAME"`
	// Wire is how the ranks' data is protected on TCP: `plain`; `authenticate`, in the clear, with a tag that detects
	// changes; `encrypt`. The latter two need a job secret. It is the same on all ranks. RAS is always encrypted.
	// Default: plain.
	Wire door.Wire `env:"CARILLON_WIRE"`
	// Keepalive is the time without a sign of life (a cut cable, a power loss) after which another host is given up,
	// and the communicators fail; at least 2s. Default: 10s.
	Keepalive time.Duration `env:"CARILLON_KEEPALIVE"`

	// Log is told of strangers at the port, once in 30 seconds at most. nil is slog.Default.
	Log *slog.Logger `json:"-"`
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if len(c.HostID) > MaxHostID {
		errs = append(errs, fmt.Errorf("HostID has %d bytes; at most %d are allowed", len(c.HostID), MaxHostID))
	}
	if c.Keepalive != 0 && c.Keepalive < MinKeepalive {
		errs = append(errs, fmt.Errorf("keepalive is %v; 0 (for %v) or at least %v are allowed",
			c.Keepalive, DefaultKeepalive, MinKeepalive))
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

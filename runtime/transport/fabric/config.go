package fabric

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillon-rt/carillon/runtime/door"
)

// MaxHostID is the maximum length of Config.HostID, in bytes.
const MaxHostID = 64

// The default and the minimum of Config.Keepalive: probes are whole seconds apart.
const (
	DefaultKeepalive = 10 * time.Second
	MinKeepalive     = 2 * time.Second
)

// Config says how the ranks of this process reach others. The zero Config is usable. The tags name the environment
// variables that package node reads.
type Config struct {
	// HostID identifies the host: processes with the same id share memory. Different ids split one machine into several
	// "nodes", for tests. Default: the kernel's boot id.
	HostID string `env:"CARILLON_HOSTID" nccl:"NCCL_HOSTID"`
	// DisableP2P keeps ranks of one process from reading each other's memory directly, and GPUs from accessing each
	// other's. The ranks use shared memory instead, like those of different processes.
	DisableP2P bool `env:"NCCL_P2P_DISABLE"`
	// DisableSHM keeps ranks of one host from sharing memory: they use TCP instead.
	DisableSHM bool `env:"NCCL_SHM_DISABLE"`

	// DisablePXN keeps ranks from sending to other nodes through another rank of their node: each pair of ranks then
	// has its own connection, instead of one for each other node. If one rank sets it, it applies to all.
	DisablePXN bool `env:"NCCL_PXN_DISABLE"`
	// SocketIfname chooses the network interfaces for TCP, in NCCL's syntax: `eth`, `=eth0`, `^docker`. Default: the
	// first interface that is up and has an address; container bridges and loopback come last.
	SocketIfname string `env:"NCCL_SOCKET_IFNAME"`
	// Wire is how the ranks' data is protected on TCP: `plain` (not at all), `authenticate` (in the clear, with a tag
	// that detects changes) or `encrypt`. The latter two need a job secret. Set the same value on all ranks. RAS is
	// always encrypted. Default: plain.
	Wire door.Wire `env:"CARILLON_WIRE"`
	// Keepalive is the time without a sign of life from another host (a cut cable, a power loss) after which the host
	// is considered lost and the communicators fail; at least 2s. Default: 10s.
	Keepalive time.Duration `env:"CARILLON_KEEPALIVE"`

	// Log gets messages about strangers that connect to the port, at most one in 30 seconds. nil means slog.Default.
	Log *slog.Logger `json:"-"`
}

// Validate returns an error if c is invalid.
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

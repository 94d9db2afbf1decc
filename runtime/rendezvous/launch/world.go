package launch

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
)

// World is a process's place in its job. The tags name the variables that go before the launcher's.
type World struct {
	// Rank is the process's rank in the job, from 0 to Size-1.
	Rank int `env:"CARILLON_RANK"`
	// Size is the number of processes of the job.
	Size int `env:"CARILLON_WORLD_SIZE"`
	// LocalRank is the process's rank among the job's processes on this host; -1 if the launcher doesn't say.
	LocalRank int `env:"CARILLON_LOCAL_RANK"`
	// LocalSize is the number of the job's processes on this host; 0 if the launcher doesn't say.
	LocalSize int `env:"CARILLON_LOCAL_WORLD_SIZE"`

	// Address is the `host:port` at which rank 0 serves the rendezvous; empty for a world of one rank.
	Address string `env:"CARILLON_ADDRESS"`
	// Rendezvous is where the ranks meet if not at rank 0: `etcd://host:2379`, or over TLS
	// `etcds://host:2379?cacert=ca.pem`, with cert= and key= for a client certificate. CARILLON_ADDRESS isn't needed
	// then.
	Rendezvous string `env:"CARILLON_RENDEZVOUS"`
	// Job is the name of the job and of its tapes' directory; empty if the launcher gives the job no name.
	Job string `env:"CARILLON_JOB"`
	// Secret is the secret that only the job's ranks know, at least 16 bytes, or a file with it; empty if the job has
	// none. `carillon run` makes one, and passes it to the ranks in a file.
	Secret []byte `env:"CARILLON_JOB_SECRET" file:"CARILLON_JOB_SECRET_FILE"`

	Launcher string // a launcher's name, such as Torchrun, or None
	// Doubt says, in a part of a sentence, why a process without a launcher may not be meant to be alone; empty if
	// there is no reason to think so.
	Doubt string
}

func alone() World { return World{Size: 1, LocalSize: 1, Launcher: None} }

// UniqueID returns the id of the job's n-th world communicator, counted from 0. All ranks derive the same id, without a
// message, from Job, Secret and the port of Address. (Not from its host: ranks may know rank 0's by different names.)
//
// An id is as distinct as the environment it comes from. Where a launcher gives each run a name or a secret, no two
// runs share an id; where RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are all there is, a program that is run again
// has the same one.
func (w World) UniqueID(n int) (lifecycle.UniqueID, error) {
	if w.Size <= 1 && w.Address == "" {
		return lifecycle.NewUniqueID("") // no other rank derives it, so it may be random
	}
	_, port, err := net.SplitHostPort(w.Address)
	if w.Rendezvous != "" {
		w.Address, port, err = "", "", nil
	}
	if err != nil {
		return lifecycle.UniqueID{}, &lifecycle.UsageError{
			Code: lifecycle.CodeInvalidArgument, Rank: w.Rank,
			Detail: "the world's address " + strconv.Quote(w.Address) + " is not host:port",
		}
	}
	seed := []byte("carillon world")
	for _, part := range [][]byte{[]byte(w.Job), w.Secret, []byte(port)} {
		seed = wire.AppendBytes(seed, part)
	}
	return lifecycle.UniqueIDFromSecret(binary.AppendVarint(seed, int64(n)), w.Address)
}

// OneHost tells whether all ranks are known to be on one host: the launcher says so, or they meet on loopback.
func (w World) OneHost() bool { return w.LocalSize == w.Size || w.loopback() }

// ListenAddress is where rank 0 opens the server: the port of Address on all addresses of its host, because Address may
// be a name that means something else there (Debian's 127.0.1.1, "localhost" on a Kubernetes master). Only when all
// ranks are known to be on one host and meet on its loopback, it is loopback alone.
func (w World) ListenAddress() string {
	_, port, err := net.SplitHostPort(w.Address)
	if err != nil || w.LocalSize == w.Size && w.loopback() {
		return w.Address // Listen will say what is wrong with it
	}
	return net.JoinHostPort("", port)
}

func (w World) loopback() bool {
	host, _, err := net.SplitHostPort(w.Address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

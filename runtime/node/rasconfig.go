package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Network says what lies between the processes of a job, by which RAS knows how long an answer may take.
type Network string

// The networks.
const (
	AutoNetwork Network = ""     // one machine if the launcher says so, else LAN
	OneMachine  Network = "host" // none: all processes run on one machine
	LAN         Network = "lan"  // round trips of at most some ten milliseconds
	WAN         Network = "wan"  // round trips of up to half a second
)

// parseNetworkName reads CARILLON_RAS_NETWORK.
func parseNetworkName(text string) (Network, error) {
	switch n := Network(strings.ToLower(text)); n {
	case OneMachine, LAN, WAN:
		return n, nil
	case "auto":
		return AutoNetwork, nil
	default:
		return AutoNetwork, errors.New("want one of auto, host, lan, wan")
	}
}

// ignored says, in a line, which settings of RAS come to nothing and why; empty if none does.
func (s *settings) ignored() string {
	var names []string
	for _, set := range []struct {
		name string
		here bool
	}{
		{"CARILLON_RAS_WEBHOOKS", len(s.RAS.Webhooks) > 0 && s.withoutRAS()},
		{"CARILLON_RAS_ALERTMANAGERS", len(s.RAS.Alertmanagers) > 0 && s.withoutRAS()},
		{"CARILLON_RAS_ADDR", s.RAS.Addr != ""},
		{"CARILLON_RAS_SEEDS", len(s.RAS.Seeds) > 0},
	} {
		if set.here {
			names = append(names, set.name)
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case s.withoutRAS():
		return "ignored: " + strings.Join(names, ", ") + ", since " + s.unwatched()
	case s.World.Size == 1:
		return "ignored: " + strings.Join(names, ", ") + ", since the job has one process, which has no others to meet"
	default:
		return ""
	}
}

// withoutRAS tells whether the process takes no part; unwatched says why.
func (s *settings) withoutRAS() bool { return !s.RAS.On || !s.Tape }

func (s *settings) unwatched() string {
	if !s.RAS.On {
		return "RAS is off (CARILLON_RAS)"
	}
	return "there is no tape (CARILLON_TAPE)"
}

// meshConfig is where and how this process meets the others of its job.
func (s *settings) meshConfig(self mesh.Member) (mesh.Config, error) {
	w, r := &s.World, &s.RAS
	id, err := w.UniqueID(0)
	if err != nil {
		return mesh.Config{}, err
	}
	// What authenticates the ranks of the job's world to each other authenticates their processes, and can't be computed
	// from it.
	secret := sha256.Sum256(append([]byte("carillon ras\n"), id.Secret()...))
	c := mesh.Config{Self: self, Secret: secret[:], Job: w.Job, Logger: s.Log, Tuning: mesh.OneMachine()}
	oneHost := w.OneHost()
	switch {
	case r.Network == LAN, r.Network == AutoNetwork && !oneHost:
		c.Tuning = mesh.LAN()
	case r.Network == WAN:
		c.Tuning = mesh.WAN()
	}
	switch {
	case r.Addr != "":
		if c.Bind, err = parseSeed(r.Addr); err != nil {
			return c, fmt.Errorf("CARILLON_RAS_ADDR=%q: %w", r.Addr, err)
		}
		if !c.Bind.Addr().IsValid() || c.Bind.Addr().IsUnspecified() {
			c.Advertise, err = s.fabricAddress()
		}
	case !oneHost:
		c.Advertise, err = s.fabricAddress()
		c.Bind = netip.AddrPortFrom(c.Advertise, 0)
	}
	return c, err
}

// fabricAddress is where communicators of other hosts find this process, and so RAS, too.
func (s *settings) fabricAddress() (netip.Addr, error) {
	f, err := fabric.New(fabric.Config{SocketIfname: s.SocketIfname})
	if err != nil {
		return netip.Addr{}, err
	}
	return f.Address()
}

// seedSuffix ends the files beside the tapes by which the processes of one host find each other: each has an address.
const seedSuffix = ".ras"

// readSeeds lists where the others of this host listen. Files of processes that have ended are removed.
func readSeeds(dir, own string) []netip.AddrPort {
	host, _ := os.Hostname()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var seeds []netip.AddrPort
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), seedSuffix)
		if !ok || name == own || strings.HasPrefix(name, ".") || !entry.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		seed, err := netip.ParseAddrPort(strings.TrimSpace(string(text)))
		if err != nil {
			continue
		}
		if text, ok := strings.CutPrefix(name, host+"-"); ok {
			if pid, err := strconv.Atoi(text); err == nil && !process.Running(pid) { // else no name that writeSeed gave
				_ = os.Remove(path)
				continue
			}
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/carillon-rt/carillon/ras/mesh"
)

// Network says what lies between the processes of a job, and so how long an answer may take.
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

// ignored says, in a line, which settings of RAS have no effect and why; empty if all have.
func (s *settings) ignored() string {
	reason := s.unwatched()
	unwatched := reason != ""
	if !unwatched && s.World.Size == 1 {
		reason = "the job has one process, which has no others to meet"
	}
	var names []string
	for _, set := range []struct {
		name string
		here bool
	}{
		{"CARILLON_RAS_WEBHOOKS", len(s.RAS.Webhooks) > 0 && unwatched},
		{"CARILLON_RAS_ALERTMANAGERS", len(s.RAS.Alertmanagers) > 0 && unwatched},
		{"CARILLON_RAS_ADDR", s.RAS.Addr != ""},
		{"CARILLON_RAS_SEEDS", len(s.RAS.Seeds) > 0},
	} {
		if set.here {
			names = append(names, set.name)
		}
	}
	if len(names) == 0 || reason == "" {
		return ""
	}
	return "ignored: " + strings.Join(names, ", ") + ", since " + reason
}

// unwatched says why the process takes no part in RAS; empty if it does.
func (s *settings) unwatched() string {
	switch {
	case !s.RAS.On:
		return "RAS is off (CARILLON_RAS)"
	case s.Tape == TapeOff:
		return "there is no tape"
	default:
		return ""
	}
}

// meshConfig is where and how this process meets the others of its job.
func (s *settings) meshConfig(self mesh.Member) (mesh.Config, error) {
	w, r := &s.World, &s.RAS
	id, err := w.UniqueID(0)
	if err != nil {
		return mesh.Config{}, err
	}
	// The secret that authenticates the ranks of the job's world to each other also authenticates their processes, but
	// can't be computed from the derived one.
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
			c.Advertise, err = s.Fabric.Address() // where communicators listen
		}
	case !oneHost:
		c.Advertise, err = s.Fabric.Address()
		c.Bind = netip.AddrPortFrom(c.Advertise, 0)
	}
	return c, err
}

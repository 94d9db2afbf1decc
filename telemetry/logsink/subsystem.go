package logsink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Subsystems is a set of NCCL's subsystems. The zero value is DefaultSubsystems.
type Subsystems uint32

// names are NCCL's subsystems in the order of their bits. The first bit says that the set was chosen.
var names = [...]string{
	"", semconv.SubsystemInit, semconv.SubsystemColl, "P2P", "SHM", semconv.SubsystemNet, semconv.SubsystemGraph, "TUNING",
	semconv.SubsystemEnv, "ALLOC", "ALLOC_HOST", "CALL", "PROXY", "NVLS", semconv.SubsystemBootstrap, "REG", "PROFILE",
	semconv.SubsystemRAS, semconv.SubsystemDestroy,
}

const (
	chosen Subsystems = 1
	// AllSubsystems is ALL.
	AllSubsystems Subsystems = 1<<len(names) - 1
)

// DefaultSubsystems are those of which lines below WARN are shown when nothing is chosen: INIT, BOOTSTRAP and ENV as in
// NCCL; DESTROY, which NCCL had in INIT for most of its life; and RAS, which is silent unless something is wrong.
func DefaultSubsystems() Subsystems {
	s, _ := ParseSubsystems("INIT,BOOTSTRAP,ENV,DESTROY,RAS")
	return s
}

// ParseSubsystems reads the value of NCCL_DEBUG_SUBSYS: names separated by commas, in any case, or ALL; with a ^ before
// the first, all but those. The names are NCCL's; some of them have nothing to say here.
func ParseSubsystems(s string) (Subsystems, error) {
	list, inverted := strings.CutPrefix(s, "^")
	set := chosen
	for name := range strings.SplitSeq(list, ",") {
		name = strings.ToUpper(strings.TrimSpace(name))
		i := slices.Index(names[:], name)
		switch {
		case name == "ALL":
			set = AllSubsystems
		case i > 0:
			set |= 1 << i
		default:
			return 0, fmt.Errorf("%q is no subsystem: want some of %s or ALL, separated by commas, with a ^ before the first "+
				"for all but those",
				name, strings.Join(names[1:], ", "))
		}
	}
	if inverted {
		set = AllSubsystems&^set | chosen
	}
	return set, nil
}

// Has tells whether a subsystem is in the set. One that has no name is.
func (s Subsystems) Has(name string) bool {
	if s == 0 {
		s = DefaultSubsystems()
	}
	i := slices.Index(names[:], name)
	return i < 1 || s&(1<<i) != 0
}

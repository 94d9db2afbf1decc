package logsink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Subsystems are some of NCCL's subsystems. nil is the default: INIT, BOOTSTRAP and ENV as in NCCL; DESTROY, which was
// part of INIT in older versions of NCCL; and RAS, which logs nothing unless something is wrong.
type Subsystems []string

var usual = Subsystems{
	semconv.SubsystemInit, semconv.SubsystemBootstrap, semconv.SubsystemEnv, semconv.SubsystemDestroy,
	semconv.SubsystemRAS,
}

// names are all of NCCL's subsystems.
var names = Subsystems{
	semconv.SubsystemInit, semconv.SubsystemColl, "P2P", "SHM", semconv.SubsystemNet, semconv.SubsystemGraph, "TUNING",
	semconv.SubsystemEnv, "ALLOC", "ALLOC_HOST", "CALL", "PROXY", "NVLS", semconv.SubsystemBootstrap, "REG", "PROFILE",
	semconv.SubsystemRAS, semconv.SubsystemDestroy,
}

// ParseSubsystems reads the value of NCCL_DEBUG_SUBSYS: names separated by commas, in any case, or ALL; with a ^ before
// the first, all except those. The names are NCCL's; some of them have no lines here.
func ParseSubsystems(s string) (Subsystems, error) {
	list, inverted := strings.CutPrefix(s, "^")
	var set Subsystems
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.ToUpper(strings.TrimSpace(name)); {
		case name == "ALL":
			set = names
		case slices.Contains(names, name):
			set = append(slices.Clip(set), name)
		default:
			return nil, fmt.Errorf("%q is no subsystem: want some of %s or ALL, separated by commas, with a "+
				"^ before the first for all but those", name, strings.Join(names, ", "))
		}
	}
	if inverted {
		set = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(set, name) })
	}
	return set, nil
}

// Has tells whether a subsystem is in the set, or isn't one of NCCL's.
func (s Subsystems) Has(name string) bool {
	if s == nil {
		s = usual
	}
	return slices.Contains(s, name) || !slices.Contains(names, name)
}

package mesh

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// Host is the machine that a member runs on, with its processes as the kernel shows them. See the methods of
// process.ID.
type Host interface {
	// Watch calls ended once, from another goroutine, when the process ends, unless stop was called before. The error
	// is process.ErrGone if the process has ended already. stop waits until ended is not running any more.
	Watch(id process.ID, ended func(process.Exit)) (stop func(), err error)
	// Look reads a process's state. The error is process.ErrGone if it has ended.
	Look(id process.ID) (process.Look, error)
	// Now is a clock, in nanoseconds, that all processes of the host share.
	Now() int64
}

type kernel struct{}

func (kernel) Watch(id process.ID, ended func(process.Exit)) (func(), error) { return id.Watch(ended) }

func (kernel) Look(id process.ID) (process.Look, error) { return id.Look() }

func (kernel) Now() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(clockOfHost, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// Self is this process as a member. rank is its rank in the job, -1 if it has none, and jobSize the number of ranks, 0
// if unknown. It fails only if the host has no name.
func Self(rank, jobSize int) (Member, error) {
	host, err := os.Hostname()
	if err != nil {
		return Member{}, fmt.Errorf("name this host: %w", err)
	}
	host = host[:min(len(host), MaxHost)]
	return processMember(host, process.Self(), rank, jobSize), nil
}

// Keep is another process of this machine as a member whose Keeper is keeper. keeper must be its own Keeper. host is
// the host's name as the process has it, of which Host takes at most MaxHost bytes; empty if that is the Keeper's.
func (keeper Member) Keep(host string, id process.ID, rank, jobSize int) Member {
	m := processMember(keeper.Host, id, rank, jobSize)
	host = words.Clip(host, MaxHost)
	if m.Keeper = keeper.Name; host != "" && host != m.Host {
		m.Host, m.Machine = host, m.Host
	}
	return m
}

func processMember(host string, id process.ID, rank, jobSize int) Member {
	return Member{Name: nameOf(host, id.PID), Host: host, ID: id, Rank: rank, JobSize: jobSize}
}

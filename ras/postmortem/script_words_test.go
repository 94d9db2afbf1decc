package postmortem_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func natural(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// named finds the value whose String is name, among the first few.
func named[T interface {
	~uint8
	fmt.Stringer
}](name string) T {
	for i := range 64 {
		if T(i).String() == name {
			return T(i)
		}
	}
	panic("nothing is called " + name)
}

func act(name string) tape.Act        { return named[tape.Act](name) }
func call(name string) lifecycle.Call { return named[lifecycle.Call](name) }
func phase(name string) tape.Phase    { return named[tape.Phase](name) }

func callOfAct(name string) lifecycle.Call {
	switch name {
	case "init":
		return lifecycle.CallInitRank
	case "group":
		return lifecycle.CallGroupStart
	}
	return call(name)
}

func code(name string) lifecycle.Code {
	for _, c := range lifecycle.Codes() {
		if c.String() == name {
			return c
		}
	}
	panic("no code " + name)
}

// kinds is a script of n kinds of operations that a process has counted, the first of which took least time.
func kinds(proc string, n int) string {
	var s strings.Builder
	for i := range n {
		call := []string{"send", "recv", "broadcast", "reduce"}[i/16]
		fmt.Fprintf(&s, "tally %s world %s %d 1 %dus\n", proc, call, 1<<(2*(i%16)), 10*(i+1))
	}
	return s.String()
}

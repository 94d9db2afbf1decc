package mesh

import "golang.org/x/sys/unix"

// clockOfHost also counts the time in which the machine sleeps.
const clockOfHost = unix.CLOCK_MONOTONIC

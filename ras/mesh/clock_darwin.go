package mesh

import "golang.org/x/sys/unix"

// clockOfHost goes on while the machine sleeps.
const clockOfHost = unix.CLOCK_MONOTONIC

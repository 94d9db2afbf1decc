//go:build !linux

package transport

import (
	"runtime"
	"sync/atomic"
	"time"
)

// futexWait sleeps a moment: where there are no futexes, whoever waits for a word in shared memory looks again.
func futexWait(_ *atomic.Uint32, _ uint32, d time.Duration) { time.Sleep(min(d, firstSleep)) }

func futexWake(*atomic.Uint32) {}

// yieldCPU offers the core to other goroutines; there is no call that offers it to other processes.
func yieldCPU() { runtime.Gosched() }

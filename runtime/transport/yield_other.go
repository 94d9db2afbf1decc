//go:build !linux

package transport

import "runtime"

// yieldCPU offers the core to other goroutines; there is no call that offers it to other processes.
func yieldCPU() { runtime.Gosched() }

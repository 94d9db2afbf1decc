//go:build !linux

package transport

import "runtime"

// yieldCPU yields to other goroutines; no call here yields to other processes.
func yieldCPU() { runtime.Gosched() }

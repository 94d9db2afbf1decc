//go:build !linux

package node_test

import "syscall"

// endsWithUs are the attributes of a process that ends when this one is killed, where there are any.
func endsWithUs() *syscall.SysProcAttr { return nil }

package node_test

import "syscall"

// endsWithUs are the attributes of a process that ends when this one is killed.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

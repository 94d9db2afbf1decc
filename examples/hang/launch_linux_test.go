package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// launch starts this program once for each rank, with a launcher's variables, and waits until all have ended.
func launch(ctx context.Context, ranks int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	port, release, err := freePort()
	if err != nil {
		return err
	}
	defer release()
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, ranks)
	for rank := range ranks {
		cmd := exec.CommandContext(ctx, program, os.Args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no rank outlives this process
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		cmd.Env = append(os.Environ(), "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(ranks),
			"LOCAL_RANK="+strconv.Itoa(rank), "LOCAL_WORLD_SIZE="+strconv.Itoa(ranks),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port,
			"CARILLON_JOB=hang-"+strconv.Itoa(os.Getpid()), "CARILLON_JOB_SECRET="+hex.EncodeToString(secret))
		go func() {
			err := cmd.Run()
			if err != nil {
				err = fmt.Errorf("rank %d was the first to fail: %w", rank, err)
			}
			ended <- err
		}()
	}
	var first error
	for range ranks {
		if err := <-ended; err != nil && first == nil {
			first = err
			defer time.AfterFunc(linger, cancel).Stop() // they have seen the failure by then, or never will
		}
	}
	return first
}

// linger is how long the other ranks have to report and end by themselves after one has failed.
const linger = 3 * time.Second

// freePort is a port for rank 0 to listen on. Until release, no program that asks for any port gets it: a socket is
// bound to it, but doesn't listen. Rank 0 gets it, as it sets SO_REUSEADDR.
func freePort() (port string, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("find a free port: %w", err)
	}
	release = func() { _ = unix.Close(fd) }
	var at unix.Sockaddr
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		if err = unix.Bind(fd, &unix.SockaddrInet4{}); err == nil {
			at, err = unix.Getsockname(fd)
		}
	}
	if err != nil {
		release()
		return "", nil, fmt.Errorf("find a free port: %w", err)
	}
	return strconv.Itoa(at.(*unix.SockaddrInet4).Port), release, nil
}

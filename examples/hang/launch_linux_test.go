package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// launch starts this program once for each rank, with the variables that a launcher sets, and waits for their end.
func launch(ctx context.Context, ranks int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
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
			defer time.AfterFunc(linger, cancel).Stop() // they have seen it by then, or never will
		}
	}
	return first
}

// linger is how long the other ranks may end by themselves when one has failed, and say what they saw of it.
const linger = 3 * time.Second

// freePort finds a port for rank 0 to listen on.
func freePort(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

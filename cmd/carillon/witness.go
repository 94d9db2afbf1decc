package main

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// witnesses are two idle processes beside a program that this process starts: one in this process's process group, and
// one in a group of its own. They tell whether a signal to this process was also sent to the program. If the program is
// in the same group, it was if the signal ended the first witness: it went to the group, or to all processes of a
// terminal or a Slurm step. If the program has made its own group, as timeout(1) does, it was if the signal ended the
// second witness.
type witnesses struct{ beside, apart *witness }

func newWitnesses() *witnesses { return &witnesses{newWitness(false), newWitness(true)} }

// got tells whether the program got a signal as well, and starts another witness if so.
func (w *witnesses) got(sig os.Signal, program int) bool {
	if group, err := syscall.Getpgid(program); err == nil && group != syscall.Getpgrp() {
		return w.apart.got(sig)
	}
	return w.beside.got(sig)
}

func (w *witnesses) close() {
	w.beside.close()
	w.apart.close()
}

// witness is one of these processes.
type witness struct {
	apart bool
	in    io.WriteCloser // closing it, or the end of this process, ends the witness
	out   io.Reader
	ended chan os.Signal
}

// witnessTime is how much later than this process the witness may get a signal.
const witnessTime = 100 * time.Millisecond

// newWitness starts a witness. If there is none, for example without cat(1), no signal counts as sent to the program.
func newWitness(apart bool) *witness {
	w := &witness{apart: apart, ended: make(chan os.Signal, 1)}
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: apart}
	in, err := cmd.StdinPipe()
	if err != nil {
		return w
	}
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		_ = in.Close()
		return w
	}
	w.in, w.out = in, out
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		var by os.Signal
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			by = status.Signal()
		}
		w.ended <- by
	}()
	return w
}

// got tells whether the witness got a signal as well, and starts another one if so.
func (w *witness) got(sig os.Signal) bool {
	if w.in == nil {
		return false
	}
	var by os.Signal
	select {
	case by = <-w.ended:
	case <-time.After(witnessTime):
		if w.answers() {
			return false
		}
		by = <-w.ended
	}
	w.close()
	*w = *newWitness(w.apart)
	return by == sig
}

// answers tells whether the witness lives, and no signal that ends it is pending, however busy the machine is.
func (w *witness) answers() bool {
	if _, err := w.in.Write([]byte{'.'}); err != nil {
		return false
	}
	n, _ := w.out.Read(make([]byte, 1))
	return n > 0
}

func (w *witness) close() {
	if w.in != nil {
		_ = w.in.Close()
	}
}

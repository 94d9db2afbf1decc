package main

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// witness is a process that does nothing, beside a program that this process starts. A signal that ends the witness,
// too, went to all processes: those of a terminal, of a process group, or of a Slurm step. Then the program has got it.
type witness struct {
	in    io.WriteCloser // its end, as that of this process, ends the witness
	out   io.Reader
	ended chan os.Signal
}

// witnessTime is how long after this process the witness may get a signal.
const witnessTime = 100 * time.Millisecond

// newWitness starts a witness. Without one, as where there is no cat(1), no signal counts as sent to all.
func newWitness() *witness {
	w := &witness{ended: make(chan os.Signal, 1)}
	cmd := exec.Command("cat")
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
	*w = *newWitness()
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

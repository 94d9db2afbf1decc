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
	life  io.Closer // ends the witness, as this process's end does
	ended chan os.Signal
}

// witnessTime is how long a signal may take to end the witness.
const witnessTime = 100 * time.Millisecond

// newWitness starts a witness. Without one, as where there is no cat(1), no signal counts as sent to all.
func newWitness() *witness {
	w := &witness{ended: make(chan os.Signal, 1)}
	cmd := exec.Command("cat") // ends when its input does
	life, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return w
	}
	w.life = life
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			w.ended <- status.Signal()
		}
	}()
	return w
}

// got tells whether the witness got a signal as well, and starts another one if so.
func (w *witness) got(sig os.Signal) bool {
	if w.life == nil {
		return false
	}
	select {
	case by := <-w.ended:
		w.close()
		*w = *newWitness()
		return by == sig
	case <-time.After(witnessTime):
		return false
	}
}

func (w *witness) close() {
	if w.life != nil {
		_ = w.life.Close()
	}
}

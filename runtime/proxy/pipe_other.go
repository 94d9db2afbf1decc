//go:build !linux

package proxy

import (
	"errors"
	"os"
)

// errNoPipe is the error where the kernel can't send from a pipe without copying.
var errNoPipe = errors.New("pipes between processes need Linux")

func makePipe() (read, write *os.File, addr uint64, err error) { return nil, nil, 0, errNoPipe }
func makeStepPipe() (*os.File, uint64, error)                  { return nil, 0, errNoPipe }
func openPipe(int, uint64) (int, error)                        { return -1, errNoPipe }
func lend(int, []byte) int                                     { return 0 }
func readPipe(*os.File, []byte)                                {}
func buffered(*os.File) int                                    { return 0 }

// Command cheader writes the C header of package lifecycle: its states, calls, events, codes and tables, for programs
// that keep a communicator's rules without Go.
//
//	cheader DIR FILE
//
// DIR is the source of package lifecycle, where the constants' comments are; everything else comes from the package
// itself. FILE is the header. It is run by go generate.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: cheader DIR FILE")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "cheader:", err)
		os.Exit(1)
	}
}

func generate(dir, file string) error {
	notes, err := readNotes(dir)
	if err != nil {
		return fmt.Errorf("read the comments of package lifecycle: %w", err)
	}
	return os.WriteFile(file, []byte(header(notes)), 0o644)
}

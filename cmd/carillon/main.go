// Command carillon is the operator's command: it starts jobs, and shows what their communicators do.
//
// Each subcommand is a constructor in a file of its own, and lists nothing but itself; newRoot puts them together.
// What they do is in packages under internal.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the command and returns the exit code. It is main without the process.
func execute(args []string, stdout, stderr *os.File) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.Execute()
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	default:
		fmt.Fprintf(stderr, "carillon: %v\n", err)
		return usageCode
	}
}

// usageCode is the exit code for what the command can't do as it was called.
const usageCode = 2

// exitCode is the error of a command that has said all there is to say, and only needs to exit with a code.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

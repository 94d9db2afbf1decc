package tapetest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PlayWith has a command play a script, which the command reads from its standard input, onto the only tape in folder.
// The folder is empty, and the command gets its name in the environment variable named variable. PlayWith returns the
// tape's path when the command has ended, also by a signal, which a script may ask for.
func PlayWith(cmd *exec.Cmd, variable, folder string, script io.Reader, env ...string) (path string, err error) {
	var stderr strings.Builder
	cmd.Env = append(append(os.Environ(), variable+"="+folder), env...)
	cmd.Stdin, cmd.Stderr = script, &stderr
	err = cmd.Run()
	if end, ok := errors.AsType[*exec.ExitError](err); ok && end.ExitCode() < 0 {
		err = nil
	}
	if stderr.Len() > 0 {
		err = errors.Join(err, errors.New(stderr.String()))
	}
	if err != nil {
		return "", fmt.Errorf("%v: %w", cmd, err)
	}
	tapes, err := filepath.Glob(filepath.Join(folder, "*", "*.tape"))
	if err == nil && len(tapes) != 1 {
		err = fmt.Errorf("%v made %d tapes, want one", cmd, len(tapes))
	}
	return strings.Join(tapes, ""), err
}

// Command carillon is the operator's command: it starts jobs, and shows what their communicators do.
//
// Each subcommand has a constructor in a file of its own; newRoot lists them. Packages under internal do the work.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/term"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/runtime/node"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the command and returns the exit code. It is main without os.Exit.
func execute(args []string, stdout, stderr *os.File) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	code := usageCode
	if cmd.Annotations[tellsHealth] != "" {
		code = view.CodeUnknown
	}
	if coded, ok := errors.AsType[*exitError](err); ok {
		code, err = coded.code, coded.err
	}
	if err != nil {
		name := ""
		if cmd != root {
			name = cmd.Name() + ": "
		}
		fmt.Fprintf(stderr, "carillon: %s%s\n", name, strings.TrimPrefix(err.Error(), "postmortem: "))
	}
	return code
}

const (
	// usageCode is the exit code of a command that could not begin, usually because it was used wrongly.
	usageCode = 2
	// tellsHealth is the annotation of a command whose exit code tells the job's health: if it fails, it exits with
	// view.CodeUnknown.
	tellsHealth = "health"
)

// exitError is an error with an exit code of its own. A nil err means that the command has printed the message.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }

// exitCode is an error without a message, or nil if code is 0.
func exitCode(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

var errInterrupted = &exitError{128 + int(unix.SIGINT), errors.New("interrupted")}

// cannotRun gives the error of starting a program the exit code that shells use, and names the program only once.
func cannotRun(err error) error {
	if failed, ok := errors.AsType[*exec.Error](err); ok {
		err = failed.Err
		if of, ok := errors.AsType[*fs.PathError](err); ok {
			err = of.Err
		}
		err = fmt.Errorf("program %s: %w", failed.Name, err)
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &exitError{codeNotFound, err}
	}
	return &exitError{codeCannotRun, err}
}

// Exit codes that shells use for a program that can't be run.
const (
	codeCannotRun = 126
	codeNotFound  = 127
)

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "carillon",
		Short: "Run jobs of communicating processes and show what they do",
		Long: `Carillon runs the ranks of a job and shows what their communicators do: which rank is doing what,
since when, and why.`,
		Version:       node.Version(),
		SilenceErrors: true, // execute shows them
		SilenceUsage:  true, // an error says what to change; the usage would hide it
		Args:          noCommand,

		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run a job:", []*cobra.Command{newRun(stdout, stderr), newAttach(), newAgent()}},
		{"Look at a job:", []*cobra.Command{newStatus(), newWatch(stdout, stderr), newComms(), newPostmortem()}},
		{"Measure:", []*cobra.Command{newBench(stdout, stderr), newTune(stdout, stderr), newSim(stderr), newCorpus()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
	root.AddCommand(newBenchWorker(stdout), newVersion())
	return root
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func colorFlag(cmd *cobra.Command, mode *term.ColorMode, what string) {
	choiceFlag(cmd, (*string)(mode), "color", what+": auto, always or never (NO_COLOR is honoured)",
		string(term.ColorAuto), string(term.ColorAlways), string(term.ColorNever))
}

// choiceFlag adds a flag with a few possible values. The first is the default.
func choiceFlag(cmd *cobra.Command, to *string, name, usage string, values ...string) {
	*to = values[0]
	cmd.Flags().Var(&choice{to, values}, name, usage)
	complete(cmd, name, values...)
}

// choice is the value of a flag with a few possible values.
type choice struct {
	to     *string
	values []string
}

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.values, text) {
		return fmt.Errorf("allowed is %s", english.WordSeries(c.values, "or"))
	}
	*c.to = text
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.to }

// Type implements pflag.Value.
func (*choice) Type() string { return "string" }

func writeJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

func writeJSONLines[T any](w io.Writer, values []T) error {
	out := json.NewEncoder(w)
	for _, v := range values {
		if err := out.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

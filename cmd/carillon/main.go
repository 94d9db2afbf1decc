// Command carillon is the operator's command: it starts jobs, and shows what their communicators do.
//
// Each subcommand has a constructor in a file of its own; newRoot lists them. Packages under internal do the work.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/term"
	"github.com/carillon-rt/carillon/runtime/node"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the command and returns the exit code. It is main without the process.
func execute(args []string, stdout, stderr *os.File) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	var code exitCode
	switch err := root.Execute(); {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	default:
		fmt.Fprintf(stderr, "carillon: %v\n", err)
		return usageCode
	}
}

// usageCode is the exit code of a wrong call.
const usageCode = 2

// exitCode is the error of a command that has printed its message, and needs only an exit code.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "carillon",
		Short: "Run jobs of communicating processes, and see through them",
		Long: `Carillon runs the ranks of a job and shows what their communicators do: which rank is doing what,
since when, and why.`,
		Version:       node.Version(),
		SilenceErrors: true, // execute shows them
		SilenceUsage:  true, // an error names what to change; the usage would hide it
		Args:          noCommand,

		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newRun(stdout, stderr),
		newComms(),
		newWatch(stdout, stderr),
		newStatus(),
		newAgent(),
		newAttach(),
		newPostmortem(),
		newBench(stdout, stderr),
		newTune(stdout, stderr),
		newBenchWorker(stdout),
		newSim(stderr),
		newCorpus(),
		newVersion(),
	)
	return root
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func colorFlag(cmd *cobra.Command, mode *term.ColorMode, what string) {
	*mode = term.ColorAuto
	cmd.Flags().Var(mode, "color", what+": auto, always or never (NO_COLOR is honoured)")
	complete(cmd, "color", term.ColorModes()...)
}

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

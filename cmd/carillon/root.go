package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/build"
)

func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "carillon",
		Short: "Run jobs of communicating processes, and see through them",
		Long: `Carillon runs the ranks of a job and shows what their communicators do: which rank is doing what,
since when, and why.`,
		Version:       build.Read().Version,
		SilenceErrors: true, // execute shows them
		SilenceUsage:  true, // an error names what to change; the usage would hide it
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(
		newRun(stdout, stderr),
		newComms(),
		newWatch(stdout, stderr),
		newStatus(),
		newPostmortem(),
		newBench(stdout, stderr),
		newBenchWorker(stdout),
		newSim(stderr),
		newCorpus(),
		newVersion(),
	)
	return root
}

// complete makes values the completions of a flag that the command has.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

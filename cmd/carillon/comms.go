package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/comms"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func newComms() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "comms [DIR]",
		Short: "Show what the communicators of a job did, from its tapes",
		Long: `Show what the communicators of a job did: one line each, with the acts of its life, and the trace id of each
act. The tapes of the job's processes are read below DIR, dead processes' too. Without DIR it is where tapes go by
default.`,
		Example: `  carillon run -n 4 --tape-dir /tmp/tapes -- ./digits; carillon comms /tmp/tapes
  carillon comms --json /tmp/tapes | jq '.communicators[].name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := tape.DefaultDir()
			if len(args) == 1 {
				dir = args[0]
			}
			report, err := comms.Read(dir)
			if err != nil {
				return fmt.Errorf("comms: %s", strings.TrimPrefix(err.Error(), "postmortem: "))
			}
			if !asJSON {
				return report.Write(cmd.OutOrStdout())
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			return out.Encode(report)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as a JSON object")
	return cmd
}

package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/job"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// sweepTapes removes the tapes of older jobs before the job makes its own, as NCCL programs remove none. The job starts
// even if this fails. spare is how many jobs keep their tapes when there is no room; -1 means all.
func sweepTapes(cmd *cobra.Command, cfg *job.Config) (spare int, err error) {
	named := cmp.Or(cfg.TapeDir, os.Getenv(tape.DirVariable))
	keep, spare, err := tape.ParseKeep(os.Getenv(tape.KeepVariable), named != "")
	if err != nil || keep < 0 {
		return spare, err
	}
	removed, err := tape.SweepJobs(cmp.Or(named, tape.DefaultDir()), keep)
	if err != nil && !cfg.Quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), "carillon: tapes of older jobs could not be removed: %v\n", err)
	}
	if len(removed) > 0 && cfg.Verbose {
		fmt.Fprintf(cmd.ErrOrStderr(), "carillon: removed the tapes of %s (%s says how many are kept)\n",
			english.Plural(len(removed), "older job", ""), tape.KeepVariable)
	}
	return spare, nil
}

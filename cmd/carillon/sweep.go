package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/job"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// keepVariable says of how many jobs tapes are kept; keepJobs is its default.
const (
	keepVariable = "CARILLON_TAPE_KEEP"
	keepJobs     = 20
)

// sweepTapes removes the tapes of older jobs from where the job's tapes will be, as they may lie in memory. A directory
// that the user named is swept only if the variable says so. What can't be removed keeps no job from starting.
func sweepTapes(cmd *cobra.Command, cfg *job.Config) error {
	keep := keepJobs
	asked := os.Getenv(keepVariable)
	switch n, err := strconv.Atoi(asked); {
	case asked == "off":
		return nil
	case asked == "":
		if cfg.TapeDir != "" || os.Getenv(tape.DirVariable) != "" {
			return nil
		}
	case err != nil || n < 0:
		return fmt.Errorf("run: %s is %q, allowed is a number of jobs from 0 on, or off", keepVariable, asked)
	default:
		keep = n
	}
	removed, err := tape.SweepJobs(cmp.Or(cfg.TapeDir, tape.DefaultDir()), keep)
	if err != nil && !cfg.Quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), "carillon: tapes of older jobs could not be removed: %v\n", err)
	}
	if len(removed) > 0 && cfg.Verbose {
		fmt.Fprintf(cmd.ErrOrStderr(), "carillon: removed the tapes of %s (%s says how many are kept)\n",
			english.Plural(len(removed), "older job", ""), keepVariable)
	}
	return nil
}

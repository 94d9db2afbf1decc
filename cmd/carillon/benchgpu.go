package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/bench"
)

// gpuFlags are --gpu, and the flags of bench that need it.
type gpuFlags struct {
	ranks       int
	collectives []string
	nccl        bool
	beside      []string
}

func (g *gpuFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&g.ranks, "gpu", 0, "measure between this number of ranks on GPUs instead, 2 to 8")
	f.StringSliceVar(&g.collectives, "collective", []string{string(bench.AllReduce)},
		"with --gpu, what to measure: "+strings.Join(bench.Collectives(), ", "))
	f.BoolVar(&g.nccl, "nccl", true, "with --gpu, compare with NCCL (CARILLON_NCCL_LIB, or the installed one)")
	f.StringSliceVar(&g.beside, "beside", nil, "with --gpu, files with measurements of other libraries")
	complete(cmd, "collective", bench.Collectives()...)
	_ = cmd.MarkFlagFilename("beside", "jsonl")
}

// check refuses flags that would have no effect.
func (g *gpuFlags) check(cmd *cobra.Command) error {
	needs, excludes := []string{"collective", "nccl", "beside"}, []string{"processes", "in-process", "mpi"}
	for _, name := range needs {
		if g.ranks == 0 && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for measuring on GPUs: give --gpu, too", name)
		}
	}
	for _, name := range excludes {
		if g.ranks != 0 && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for measuring on the host, and --gpu measures on GPUs instead: give one of them",
				name)
		}
	}
	return nil
}

func (g *gpuFlags) bench(ctx context.Context, cmd *cobra.Command, s bench.Setup, asJSON bool, stdout io.Writer,
	stderr io.Writer,
) error {
	if err := allow(g.ranks >= 2 && g.ranks <= 8, "--gpu", g.ranks, "2 to 8 ranks"); err != nil {
		return usageError(cmd, err)
	}
	if len(g.collectives) == 0 {
		g.collectives = []string{""}
	}
	var collectives []bench.Collective
	for _, name := range g.collectives {
		if !slices.Contains(bench.Collectives(), name) {
			return usageError(cmd, fmt.Errorf("--collective is %q, allowed are %s", name,
				strings.Join(bench.Collectives(), ", ")))
		}
		collectives = append(collectives, bench.Collective(name))
	}
	others, err := readOthers(g.beside)
	if err != nil {
		return usageError(cmd, fmt.Errorf("--beside: %w", err))
	}
	results, err := bench.GPUs(ctx, s, collectives, g.ranks, g.nccl, stderr)
	bench.Join(results, others)
	if ctx.Err() != nil {
		return errInterrupted
	}
	switch { // measurements made before a failure are valid
	case asJSON:
		return errors.Join(writeJSONLines(stdout, results), err)
	case err == nil || len(results) > 0:
		return errors.Join(bench.WriteGPU(stdout, results), err)
	}
	return err
}

func readOthers(paths []string) (all []bench.Other, err error) {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		others, err := bench.ReadOthers(f)
		_ = f.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, others...)
	}
	return all, nil
}

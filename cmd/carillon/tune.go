package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/bench"
	enginecuda "github.com/carillon-rt/carillon/runtime/engine/cuda"
)

func newTune(stdout, stderr *os.File) *cobra.Command {
	var s bench.Setup
	var ranks []int
	var sizes, pushSizes, output string
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Measure which kernels are the fastest on this machine's GPUs",
		Long: `Measure up to which size each kind of kernel is the fastest on this machine's NVIDIA GPUs, and write
the file that ` + enginecuda.TuningVariable + ` names to a job. All processes of a job need the same file.

If there are fewer GPUs than ranks, ranks share GPUs, and the result says little about ranks that don't. Run nothing
else on the GPUs while measuring.`,
		Example: `  carillon tune --output tuning.json
  carillon tune --ranks 2,8 > tuning.json
  ` + enginecuda.TuningVariable + `=tuning.json carillon bench --gpu 2`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := completeSetup(&s, sizes); err != nil {
				return usageError(cmd, err)
			}
			pushed, err := bench.ParseSizes(pushSizes)
			if err != nil {
				return usageError(cmd, fmt.Errorf("--push-sizes: %w", err))
			}
			slices.Sort(s.Sizes)
			slices.Sort(pushed)
			for _, n := range ranks {
				if err := allow(n >= 2 && n <= 8, "--ranks", n, "2 to 8"); err != nil {
					return usageError(cmd, err)
				}
			}
			if output != "" { // fail before the measurements, not after
				_, missing := os.Stat(output)
				f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE, 0o644) //nolint:gosec // others read it
				if err != nil {
					return usageError(cmd, fmt.Errorf("--output: %w", err))
				}
				_ = f.Close() // nothing was written
				defer func() {
					if err != nil && missing != nil {
						_ = os.Remove(output) // it is empty
					}
				}()
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			tuning, err := bench.Tune(ctx, s, pushed, ranks, stderr)
			switch {
			case ctx.Err() != nil, errors.Is(err, context.Canceled):
				return errInterrupted
			case err != nil:
				return err
			}
			text, err := json.MarshalIndent(tuning, "", "  ")
			if err != nil {
				return err
			}
			text = append(text, '\n')
			if output == "" {
				_, err = stdout.Write(text)
				return err
			}
			return os.WriteFile(output, text, 0o644) //nolint:gosec // other users' jobs read it, too
		},
	}
	cmd.Flags().IntSliceVar(&ranks, "ranks", []int{2, 4, 8}, "numbers of ranks, 2 to 8")
	cmd.Flags().StringVar(&sizes, "sizes", "4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M,8M", "sizes in bytes")
	cmd.Flags().StringVar(&pushSizes, "push-sizes", "4M,8M,16M,32M,64M,128M,256M,512M",
		"sizes in bytes at which reductions may write to other ranks instead of reading from them")
	cmd.Flags().StringVarP(&output, "output", "o", "", "the file to write (default: standard output)")
	setupFlags(cmd, &s, 50*time.Millisecond, 200)
	return cmd
}

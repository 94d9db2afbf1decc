package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/carillon-rt/carillon/runtime/node"
)

type buildInfo struct {
	Version  string `json:"version"`  // a tag, or the output of git describe; "devel" in a plain build
	Commit   string `json:"commit"`   // the full hash; "unknown" when the toolchain didn't record it
	Go       string `json:"go"`       // the toolchain, such as "go1.26.8"
	Platform string `json:"platform"` // such as "linux/amd64"
}

func readBuildInfo() buildInfo {
	info := buildInfo{
		Version: node.Version(), Commit: "unknown", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if recorded, ok := debug.ReadBuildInfo(); ok {
		for _, s := range recorded.Settings {
			if s.Key == "vcs.revision" {
				info.Commit = s.Value
			}
		}
	}
	return info
}

// String returns the buildInfo in one line.
func (i buildInfo) String() string {
	return fmt.Sprintf("carillon %s (commit %.12s, %s, %s)", i.Version, i.Commit, i.Go, i.Platform)
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  carillon version
  carillon version --json | jq -r .commit`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := readBuildInfo()
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), info)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), info)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

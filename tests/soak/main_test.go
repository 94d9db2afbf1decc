package soak

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
)

var (
	lasts   = flag.Duration("soak", 10*time.Second, "how long the job is watched")
	ranks   = flag.Int("ranks", 4, "of the job")
	perCore = flag.Int("per-core", 4, "busy processes for each core, beside the ranks")
)

// roleVariable makes the test binary another program.
const roleVariable = "SOAK_TEST_ROLE"

// The roles.
const (
	roleRank = "rank"
	roleBusy = "busy"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(e2e.Main(m))
	}
	play := map[string]func(context.Context) error{roleRank: runRank, roleBusy: runBusy}[role]
	if err := play(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

package polling

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// roleVariable makes the test binary another program.
const roleVariable = "POLLING_TEST_ROLE"

// The roles.
const (
	roleRank      = "rank"
	roleBystander = "bystander"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(e2e.Main(m))
	}
	play := map[string]func(context.Context) error{roleRank: runRank, roleBystander: runBystander}[role]
	if err := play(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

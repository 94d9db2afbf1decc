package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// insideVariable says that this process has been started in the tests' own network namespace.
const insideVariable = "CARILLONTEST_CHAOS_INSIDE"

func TestMain(m *testing.M) {
	if fault, isRank := os.LookupEnv(faultVariable); isRank {
		if err := runRank(context.Background(), fault); err != nil {
			fmt.Fprintln(os.Stderr, "rank:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(insideVariable) != "" {
		flag.Parse()
		if err := flag.Set("test.parallel", "4"); err != nil { // jobs mostly wait, for thresholds and timeouts
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(1)
		}
		os.Exit(e2e.Main(m))
	}
	os.Exit(inside())
}

// inside runs the tests in a network namespace of their own, so that their bridges and addresses don't collide with
// others.
func inside() int {
	for command, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux"} {
		if _, err := exec.LookPath(command); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: %v; install it: apt-get install -y --no-install-recommends %s\n", err, pkg)
			return 1
		}
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "chaos: a network namespace needs root:", err)
	return 1
}

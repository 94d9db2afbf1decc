package rails

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// insideVariable says that this process has been started in the tests' own network namespace.
const insideVariable = "CARILLONTEST_RAILS_INSIDE"

func TestMain(m *testing.M) {
	if _, isRank := os.LookupEnv(rankVariable); isRank {
		if err := runRank(); err != nil {
			fmt.Fprintln(os.Stderr, "rank:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(insideVariable) != "" {
		os.Exit(m.Run())
	}
	os.Exit(inside())
}

// inside runs the tests in a network namespace of their own, so that their bridges and addresses don't collide with
// others.
func inside() int {
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
	fmt.Fprintln(os.Stderr, "rails: a network namespace needs root, and ip and nsenter:", err)
	return 1
}

// congestion is the hosts' TCP congestion control, whatever the machine uses: BBR paces by an estimate of the
// bandwidth, for which a burst on virtual Ethernet is too short, and CUBIC may not be a namespace's default.
const congestion = "reno"

// newHosts makes n network namespaces that are connected by a switch, each with a host name of its own, and returns the
// beginning of a command that runs in each.
func newHosts(tb testing.TB, n int) (enter [][]string) {
	tb.Helper()
	ip(tb, "link", "add", "switch", "type", "bridge")
	ip(tb, "link", "set", "switch", "up")
	tb.Cleanup(func() { ip(tb, "link", "delete", "switch") })
	for i := range n {
		holder := exec.Command("sleep", "infinity")
		holder.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL,
		}
		if err := holder.Start(); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			_ = holder.Process.Kill()
			_ = holder.Wait() // it was killed
		})
		pid, port := fmt.Sprint(holder.Process.Pid), fmt.Sprintf("port%d", i)
		in := []string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--uts=/proc/" + pid + "/ns/uts", "--"}
		enter = append(enter, in)
		ip(tb, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", pid)
		tb.Cleanup(func() { ip(tb, "link", "delete", port) })
		ip(tb, "link", "set", port, "master", "switch", "up")
		for _, args := range [][]string{
			{"hostname", fmt.Sprint("host", i)},
			{"ip", "link", "set", "lo", "up"},
			{"ip", "address", "add", address(i) + "/24", "dev", "eth0"},
			{"ip", "link", "set", "eth0", "up"},
			{"sh", "-c", "echo " + congestion + " >/proc/sys/net/ipv4/tcp_congestion_control"},
		} {
			command(tb, append(in[:len(in):len(in)], args...)...)
		}
	}
	return enter
}

func address(host int) string { return fmt.Sprintf("10.214.0.%d", host+1) }

func ip(tb testing.TB, args ...string) { tb.Helper(); command(tb, append([]string{"ip"}, args...)...) }

func command(tb testing.TB, args ...string) {
	tb.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		tb.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// onHost returns a command that runs on a host.
func onHost(enter []string, args ...string) *exec.Cmd {
	cmd := exec.Command(enter[0], append(enter[1:len(enter):len(enter)], args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// together runs commands at the same time, and returns the output of each.
func together(tb testing.TB, cmds []*exec.Cmd) (printed []string) {
	tb.Helper()
	outs := make([]io.Reader, len(cmds))
	for i, cmd := range cmds {
		out, err := cmd.StdoutPipe()
		if err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		outs[i] = out
	}
	for i, cmd := range cmds {
		text, err := io.ReadAll(outs[i])
		if err != nil {
			tb.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			tb.Errorf("process %d of %d: %v", i, len(cmds), err)
		}
		printed = append(printed, string(text))
	}
	return printed
}

package rails

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
)

// The least and most measurements of a size. They follow the least number of calls that don't count.
const (
	fewest = 3
	most   = 10_000
)

// BenchmarkAllReduce prints the median time of a float32 sum between two hosts: ours, and those of gloo and Open MPI
// over TCP if they are installed. An iteration measures each side once, in turn, in a job of its own.
func BenchmarkAllReduce(b *testing.B) {
	budget := 500 * time.Millisecond
	for _, ranks := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("2x%d", ranks), func(b *testing.B) {
			enter, layout := newHosts(b, 2), []int{ranks, ranks}
			sides := []side{{name: "ours", measure: func(size int) []string {
				return runOn(b, enter, job{Hosts: layout, Do: "allreduce", Sizes: []int{size}, Budget: budget})
			}}}
			sides = append(sides, gloo(b, enter, layout, budget)...)
			sides = append(sides, openMPI(b, enter, layout, budget))
			sizes := []int{64 << 10, 1 << 20, 64 << 20}
			took := make([][][]time.Duration, len(sizes)) // by size, side and iteration
			for i := range took {
				took[i] = make([][]time.Duration, len(sides))
			}
			for b.Loop() {
				for i, size := range sizes {
					for k, s := range sides {
						if s.missing == "" {
							took[i][k] = append(took[i][k], s.once(b, size))
						}
					}
				}
			}
			fmt.Fprintf(os.Stderr, "\n%s\n", b.Name())
			for _, s := range sides {
				if s.missing != "" {
					fmt.Fprintf(os.Stderr, "%s is not measured: %s\n", s.name, s.missing)
				}
			}
			printSides(sizes, sides, took)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// side is one library's all-reduce.
type side struct {
	name    string
	missing string                  // why it can't be measured; empty if it can
	measure func(size int) []string // returns the output of its processes: the first one prints iterations and seconds
}

func (s *side) once(b *testing.B, size int) time.Duration {
	b.Helper()
	var iterations int
	var seconds float64
	printed := s.measure(size)
	if _, err := fmt.Sscan(printed[0], &iterations, &seconds); err != nil {
		b.Fatalf("%s, %d bytes: %v: %q", s.name, size, err, printed[0])
	}
	return time.Duration(seconds * float64(time.Second))
}

// printSides prints a line for each size: the time of each side, and the ratios of the other sides' times to ours.
func printSides(sizes []int, sides []side, took [][][]time.Duration) {
	fmt.Fprintf(os.Stderr, "%10s", "bytes")
	for i, s := range sides {
		fmt.Fprintf(os.Stderr, " %12s", s.name)
		if i > 0 {
			fmt.Fprintf(os.Stderr, " %7s", "/ ours")
		}
	}
	fmt.Fprintln(os.Stderr)
	for i, size := range sizes {
		fmt.Fprintf(os.Stderr, "%10d", size)
		for k, s := range sides {
			switch {
			case s.missing != "":
				fmt.Fprintf(os.Stderr, " %12s %7s", "-", "-")
			case k == 0:
				fmt.Fprintf(os.Stderr, " %12v", median(took[i][k]).Round(time.Microsecond))
			default:
				fmt.Fprintf(os.Stderr, " %12v %7.2f", median(took[i][k]).Round(time.Microsecond),
					float64(median(took[i][k]))/float64(median(took[i][0])))
			}
		}
		fmt.Fprintln(os.Stderr)
	}
}

// arguments returns the last arguments of all programs: bytes, seconds, least and most iterations.
func arguments(size int, budget time.Duration) []string {
	return []string{fmt.Sprint(size), fmt.Sprint(budget.Seconds()), fmt.Sprint(fewest), fmt.Sprint(most)}
}

// compile builds a program, or returns what is missing for that.
func compile(b *testing.B, needs []string, packages string, args ...string) (program, missing string) {
	b.Helper()
	for _, file := range needs {
		if _, err := exec.LookPath(file); err != nil && !exists(file) {
			return "", fmt.Sprintf("%s is not there (Debian: apt-get install %s)", file, packages)
		}
	}
	program = filepath.Join(b.TempDir(), "allreduce")
	command(b, append(args, "-o", program)...)
	return program, ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// gloo has two algorithms; sometimes the one is faster and sometimes the other.
func gloo(b *testing.B, enter [][]string, layout []int, budget time.Duration) (sides []side) {
	program, missing := compile(b, []string{"g++", "/usr/include/gloo/allreduce.h"}, "g++ libgloo-dev",
		"g++", "-O3", "-march=native", "testdata/allreduce_gloo.cc", "-lgloo")
	for _, algorithm := range []string{"ring", "bcube"} {
		sides = append(sides, side{name: "gloo " + algorithm, missing: missing, measure: func(size int) []string {
			j, meet := job{Hosts: layout}, b.TempDir()
			var cmds []*exec.Cmd
			for rank := range j.size() {
				args := []string{program, fmt.Sprint(rank), fmt.Sprint(j.size()), meet, "eth0", algorithm}
				cmds = append(cmds, onHost(enter[j.host(rank)], append(args, arguments(size, budget)...)...))
			}
			return together(b, cmds)
		}})
	}
	return sides
}

// openMPI starts its ranks with an agent that enters a host as ssh would.
func openMPI(b *testing.B, enter [][]string, layout []int, budget time.Duration) side {
	program, missing := compile(b, []string{"mpirun", "mpicc"}, "openmpi-bin libopenmpi-dev",
		"mpicc", "-O2", "../../cmd/carillon/internal/bench/openmpi/allreduce.c")
	agent := filepath.Join(b.TempDir(), "agent")
	script := "#!/bin/sh\ncase $1 in\n"
	var hosts []string
	for i, in := range enter {
		script += fmt.Sprintf("%s) shift; exec %s sh -c \"$*\";;\n", address(i), strings.Join(in, " "))
		hosts = append(hosts, fmt.Sprintf("%s:%d", address(i), layout[i]))
	}
	if err := os.WriteFile(agent, []byte(script+"esac\n"), 0o700); err != nil {
		b.Fatal(err)
	}
	// All hosts have the same cores: a rank that is bound to a core would share it with a rank of the other host.
	args := []string{
		"mpirun", "--allow-run-as-root", "--host", strings.Join(hosts, ","), "--bind-to", "none",
		"--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "eth0",
		"--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include", "eth0",
	}
	if (job{Hosts: layout}).size() > runtime.NumCPU() {
		args = append(args, "--mca", "mpi_yield_when_idle", "1")
	}
	args = append(args, program)
	return side{name: "Open MPI", missing: missing, measure: func(size int) []string {
		return together(b, []*exec.Cmd{onHost(enter[0], append(slices.Clone(args), arguments(size, budget)...)...)})
	}}
}

// reduction is the median time of an all-reduce, on the slowest rank.
type reduction struct {
	iterations int
	latency    time.Duration
}

// measureAllReduce does what the programs of the other sides do. Open MPI's program makes many more operations, and has
// no trial run before the one that counts.
func measureAllReduce(ctx context.Context, world *ccl.Comm, size int, budget time.Duration) (reduction, error) {
	send, recv := make([]float32, size/4), make([]float32, size/4)
	for i := range send {
		send[i] = 1
	}
	trial := func(n int) (time.Duration, error) {
		if err := ccl.Barrier(ctx, world); err != nil {
			return 0, err
		}
		took := make([]time.Duration, n)
		for i := range took {
			begun := time.Now()
			if err := ccl.AllReduce(ctx, world, send, recv, ccl.Sum); err != nil {
				return 0, err
			}
			took[i] = time.Since(begun)
		}
		return median(took), nil
	}
	// The first operations use memory that nobody has touched, so their time doesn't count.
	var slowest time.Duration
	n := []int64{fewest}
	for _, share := range []time.Duration{0, budget / 2, budget} {
		if share > 0 {
			n[0] = min(max(int64(share/max(slowest, 1)), fewest), most)
		}
		if err := ccl.AllReduce(ctx, world, n, n, ccl.Max); err != nil {
			return reduction{}, err
		}
		var err error
		if slowest, err = trial(int(n[0])); err != nil {
			return reduction{}, err
		}
	}
	sum := float32(world.Size())
	for i, v := range recv {
		if v != sum {
			return reduction{}, fmt.Errorf("element %d of the sum is %v", i, v)
		}
	}
	latency := []int64{int64(slowest)}
	err := ccl.AllReduce(ctx, world, latency, latency, ccl.Max)
	return reduction{int(n[0]), time.Duration(latency[0])}, err
}

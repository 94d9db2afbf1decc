package node_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// BenchmarkSteady is the cost of RAS and the health endpoint for each of the 8 processes of an idle job: two such jobs
// run side by side for 20 seconds, one with both (on) and one with neither (off); both have tape, traces, metrics and
// the look for stalls. It shows means: percent of a processor, resident MiB and MiB of the heap in use, and how much
// more that is with RAS and health.
func BenchmarkSteady(b *testing.B) {
	const size, warm, idle = 8, 5 * time.Second, 20 * time.Second
	jobs := [2][]*process{
		startProcesses(b, size, "steady-on", "idle"),
		startProcesses(b, size, "steady-off", "idle", "CARILLON_RAS=off", "CARILLON_HEALTH_ADDR=off"),
	}
	defer end(jobs[0])
	defer end(jobs[1])
	wait := time.NewTimer(warm) // until they have met, and all work of the start is done
	<-wait.C
	var cpu, resident, heap [2]float64
	for b.Loop() {
		var before [2]time.Duration
		began := time.Now()
		for i, job := range jobs {
			before[i] = used(job)
		}
		wait.Reset(idle)
		<-wait.C
		for i, job := range jobs {
			cpu[i] = 100 * (used(job) - before[i]).Seconds() / time.Since(began).Seconds() / size
			resident[i], heap[i] = 0, 0
			for _, p := range job {
				resident[i] += p.resident() / size
				p.signal(syscall.SIGUSR1)
				bytes, err := strconv.ParseFloat(p.answer("heap"), 64)
				if err != nil {
					b.Fatal(err)
				}
				heap[i] += bytes / (1 << 20) / size
			}
		}
	}
	for name, v := range map[string][2]float64{"cpu-%": cpu, "rss-MiB": resident, "heap-MiB": heap} {
		b.ReportMetric(v[0], "on-"+name)
		b.ReportMetric(v[1], "off-"+name)
		b.ReportMetric(v[0]-v[1], "more-"+name)
	}
}

// used is the processor time that the processes have used.
func used(job []*process) time.Duration {
	var sum time.Duration
	for _, p := range job {
		var ts unix.Timespec
		clock := int32(^p.cmd.Process.Pid<<3 | 2) // of the process, as clock_getcpuclockid makes it: CPUCLOCK_SCHED
		if err := unix.ClockGettime(clock, &ts); err != nil {
			p.b.Fatal(err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum
}

// resident is the process's resident set, in MiB.
func (p *process) resident() float64 {
	p.b.Helper()
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		p.b.Fatal(err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		p.b.Fatal(err)
	}
	return float64(status.VmRSS) / (1 << 20)
}

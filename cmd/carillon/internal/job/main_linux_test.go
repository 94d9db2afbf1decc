package job

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// programVariable names the program of a rank, and makes the test's binary that rank.
const programVariable = "CARILLONTEST_JOB_PROGRAM"

func TestMain(m *testing.M) {
	if program := os.Getenv(programVariable); program != "" {
		os.Exit(programs[program]())
	}
	goleak.VerifyTestMain(m)
}

// programs are what ranks do in the tests. Each returns its exit code.
var programs = map[string]func() int{
	// env prints the variables that it has.
	"env": func() int {
		for _, kv := range os.Environ() {
			for _, prefix := range []string{"RANK=", "WORLD_", "LOCAL_", "MASTER_", "CARILLON_"} {
				if strings.HasPrefix(kv, prefix) && !strings.HasPrefix(kv, programVariable) {
					fmt.Println(kv)
				}
			}
		}
		return 0
	},
	// secret shows the file with the job's secret, and fails unless it is a restart.
	"secret": func() int {
		path := os.Getenv("CARILLON_JOB_SECRET_FILE")
		info, err := os.Stat(path)
		if err != nil {
			fmt.Println(err)
			return 2
		}
		text, err := os.ReadFile(path)
		fmt.Println(info.Mode(), string(text), path)
		if err != nil || os.Getenv("TORCHELASTIC_RESTART_COUNT") == "0" {
			return 1
		}
		return 0
	},
	// address prints where its health endpoint is to be, and waits to be ended.
	"address": func() int {
		fmt.Println(os.Getenv("CARILLON_HEALTH_ADDR"))
		select {}
	},
	// signals prints the signals that it gets; SIGUSR1 makes it exit with 1, SIGALRM with 0, SIGTERM and SIGINT with 3.
	"signals": func() int {
		ch := make(chan os.Signal, 8)
		signal.Notify(ch)
		fmt.Println("ready", os.Getpid())
		for sig := range ch {
			switch sig {
			case syscall.SIGUSR1:
				return 1
			case syscall.SIGALRM:
				return 0
			case syscall.SIGTERM, syscall.SIGINT:
				return 3
			case syscall.SIGHUP, syscall.SIGUSR2, syscall.SIGQUIT:
				fmt.Println("got", unix.SignalName(sig.(syscall.Signal)))
			}
		}
		return 0
	},
	// stubborn ignores every signal that can be ignored.
	"stubborn": func() int {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("ready", os.Getpid())
		select {}
	},
	// ledger prints, at SIGINT, what its launcher has noted by then of the end of the job.
	"ledger": func() int {
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGINT)
		began := process.Monotonic()
		dir := filepath.Join(os.Getenv("CARILLON_TAPE_DIR"), os.Getenv("CARILLON_JOB"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return 1
		}
		fmt.Println("ready", os.Getpid())
		<-ch
		entries, err := process.ReadLedger(filepath.Join(dir, process.Ledger))
		for _, e := range process.OfRun(entries, began) {
			if e.Rank >= 0 { // else it is the launcher's start
				fmt.Println("noted", e.Ended, err)
			}
		}
		return 0
	},
	// plain has no handler: any signal ends it.
	"plain": func() int {
		fmt.Println("ready", os.Getpid())
		select {}
	},
	// parent leaves a child behind that holds parent's output open, and exits with 0.
	"parent":         func() int { return leaveBehind("plain") },
	"stubbornparent": func() int { return leaveBehind("stubborn") },
	// stranger leaves a child behind that has left its group, and holds stranger's standard error open.
	"stranger": func() int {
		cmd := exec.Command("sleep", "60")
		cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 1
		}
		fmt.Fprint(os.Stderr, "last words")
		fmt.Println("stranger", cmd.Process.Pid)
		return 0
	},
	// half prints half a line and waits to be ended.
	"half": func() int {
		fmt.Print("half a line")
		select {}
	},
	// noise prints without end.
	"noise": func() int {
		for {
			if _, err := fmt.Println("noise"); err != nil {
				return 1
			}
		}
	},
	// complaint prints to its standard error first, and waits to be ended.
	"complaint": func() int {
		fmt.Fprintln(os.Stderr, "a complaint")
		fmt.Println("ready", os.Getpid())
		select {}
	},
	// lines prints a numbered line a thousand times, each in two writes.
	"lines": func() int {
		for i := range 1000 {
			fmt.Printf("line %d ", i)
			fmt.Fprintf(os.Stdout, "of rank %s\n", os.Getenv("RANK"))
		}
		return 0
	},
	// cat copies its input to its output.
	"cat": func() int {
		n, err := io.Copy(os.Stdout, os.Stdin)
		fmt.Println("read", n, err)
		return 0
	},
	"fail": func() int { return 5 },
}

func leaveBehind(program string) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), programVariable+"="+program)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 1
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	fmt.Print("child ", line)
	return 0
}

// underTest is a job under test.
type underTest struct {
	t       *testing.T
	lines   chan string // the job's standard output, by line
	partial chan string // what it has printed so far, each time that more has arrived
	signals chan os.Signal
	stderr  *strings.Builder
	stdout  *os.File // the reading end
	result  *Result
	err     error
	done    chan struct{}
}

// begin runs a job whose ranks run a program of programs. The test reads the streams that cfg doesn't name.
func begin(t *testing.T, program string, cfg Config) *underTest {
	t.Helper()
	j := &underTest{
		t: t, lines: make(chan string, 1<<16), partial: make(chan string, 1<<16),
		signals: make(chan os.Signal, 8), stderr: &strings.Builder{}, done: make(chan struct{}),
	}
	var stdout, stderr, errRead *os.File
	j.stdout, stdout = pipe(t)
	errRead, stderr = pipe(t)
	cfg.Program = []string{os.Args[0]}
	cfg.Env = append(os.Environ(), programVariable+"="+program)
	cfg.Env = append(cfg.Env, "NO_COLOR=", "TERM=xterm", "GORACE=atexit_sleep_ms=0")
	cfg.Stdout, cfg.Stderr, cfg.Signals = cmp.Or(cfg.Stdout, stdout), cmp.Or(cfg.Stderr, stderr), j.signals
	if cfg.Ranks == 0 {
		cfg.Ranks = 1
	}

	copied := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(j.stderr, errRead)
		copied <- struct{}{}
	}()
	go func() {
		j.readLines()
		copied <- struct{}{}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	go func() {
		defer close(j.done)
		j.result, j.err = Run(ctx, cfg)
		stdout.Close()
		stderr.Close()
		<-copied
		<-copied
	}()
	t.Cleanup(func() {
		cancel()
		<-j.done
	})
	return j
}

func (j *underTest) readLines() {
	defer close(j.lines)
	defer close(j.partial)
	var line []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := j.stdout.Read(buf)
		if n > 0 {
			j.partial <- string(buf[:n])
		}
		for _, b := range buf[:n] {
			if b == '\n' {
				j.lines <- string(line)
				line = line[:0]
				continue
			}
			line = append(line, b)
		}
		if err != nil {
			if len(line) > 0 {
				j.lines <- "unfinished: " + string(line)
			}
			return
		}
	}
}

// await reads lines until one with each text has come, and returns what followed each text.
func (j *underTest) await(texts ...string) []string {
	j.t.Helper()
	found := make([]string, len(texts))
	missing := len(texts)
	for line := range j.lines {
		for i, text := range texts {
			if _, after, ok := strings.Cut(line, text); ok && found[i] == "" {
				found[i] = after + " "
				missing--
				break
			}
		}
		if missing == 0 {
			return found
		}
	}
	j.t.Fatalf("the job ended without having printed all of %q; it printed %q; %s", texts, found, j.stderr)
	return nil
}

// ready waits until all n ranks are ready, and returns their process ids.
func (j *underTest) ready(n int) []int {
	j.t.Helper()
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("[%d] ready ", i)
	}
	pids := make([]int, n)
	for i, s := range j.await(texts...) {
		pids[i] = number(j.t, s)
	}
	return pids
}

// end waits for the job's end.
func (j *underTest) end() *Result {
	j.t.Helper()
	<-j.done
	if j.err != nil {
		j.t.Fatal(j.err)
	}
	return j.result
}

// rest returns the lines that were not awaited. The job must have ended.
func (j *underTest) rest() []string {
	<-j.done
	var lines []string
	for line := range j.lines {
		lines = append(lines, line)
	}
	return lines
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// awaitEnd waits until a process is gone.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it is gone
	}
	defer unix.Close(fd)
	if !poll([]int{fd}, 20*time.Second)[0] {
		t.Errorf("process %d is alive", pid)
	}
}

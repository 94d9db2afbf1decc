package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/job"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/runtime/rendezvous/launch"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

const (
	// libraryName is the library that writes the tape of a program that uses NCCL. It is in this program's folder.
	libraryName = "libcarillon-nccl.so"
	// auditName is the audit library, in the same folder. It makes the loader bind calls of NCCL to libraryName.
	auditName = "libcarillon-audit.so"
	// libraryVariable overrides the path of libraryName.
	libraryVariable = "CARILLON_NCCL_LIBRARY"

	// defaultPlugin is the profiler plug-in that NCCL loads, if it exists, unless NCCL_PROFILER_PLUGIN is set.
	defaultPlugin = "libnccl-profiler.so"
)

type attachFlags struct {
	agentFlags
	how      string
	printEnv bool
}

func newAttach() *cobra.Command {
	var a attachFlags
	cmd := &cobra.Command{
		Use:   "attach [flags] -- program [args]",
		Short: "Run an unmodified NCCL program, such as torchrun, and show what it does",
		Long: `Run a program whose processes use NCCL, and follow them as carillon agent does: spans, metrics, verdicts
and a health page. The program isn't changed: ` + libraryName + ` is preloaded into its processes, and is also
NCCL's profiler plug-in. The library does nothing until the program first calls NCCL.

--how decides how the program's NCCL calls reach the library. preload works if the program is linked with NCCL or
loads a library that is, as PyTorch does. audit (rtld-audit(7)) also works if the program looks up NCCL's functions
with dlsym, as JAX, vLLM and Python's ctypes do, or uses RTLD_DEEPBIND to load a library that is linked with NCCL. audit
doesn't slow down calls, only the start of every process. It needs glibc 2.35 or later; otherwise preload is used. auto
chooses preload if the program itself is linked with NCCL or the audit library is missing, and audit otherwise.

Neither sees calls to a statically linked NCCL, or calls from code built with -fno-plt and loaded with RTLD_DEEPBIND.
There the profiler plug-in still sees operations (NCCL 2.23 and later), but there are no guards. Setuid programs and
programs started without their environment (env -i) aren't seen at all. A program that looks up an NCCL function
through a weak symbol finds it even if its NCCL lacks the function; calling it returns ncclInvalidUsage. For operations
captured in a CUDA graph, only the capture is seen, not the replays: a hang in a replay isn't detected.

The libraries are found beside carillon, or beside the file that ` + libraryVariable + ` names. Attach sets
LD_PRELOAD, LD_AUDIT, NCCL_PROFILER_PLUGIN, CARILLON_TAPE_DIR and CARILLON_JOB for the program. Libraries that the
first two already name stay there. The profiler plug-in that NCCL would load still works: attach puts it before those
that CARILLON_PROFILER_NEXT names.

Attach follows its program itself. An agent that follows all jobs of the machine leaves the job to attach. To have that
agent follow the program instead, start the program without attach, in the environment that --print-env prints. Its
lines are for eval; a Slurm TaskProlog can print them, too, if no path needs quotes. They set CARILLON_TAPE_DIR and
CARILLON_JOB only if these are given; without a name, the processes name the job as their launcher does. A program
given with --print-env isn't run: --how auto only checks whether it is linked with NCCL.

The program shares attach's terminal, input and output, and gets its signals; a signal sent to all processes of the
terminal reaches the program only once.

The exit code is the program's, or 128 plus the number of the signal that killed it; 2 means a wrong call, 126 and 127
a program that can't be run or found. If attach is killed, the program continues, and carillon agent can follow it.

Attach is configured by the same variables as carillon agent.`,
		Example: `  carillon attach -- torchrun --nproc-per-node 8 train.py
  carillon attach --job train-1a2b -- python3 train.py &
  carillon watch train-1a2b
  eval "$(carillon attach --print-env)" && torchrun --nproc-per-node 8 train.py
  OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 carillon attach -- ./all_reduce_perf`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.printEnv {
				return a.printEnvironment(cmd, args)
			}
			if len(args) == 0 {
				const missing = "the program is missing, want a program and its arguments, after --"
				return usageError(cmd, errors.New(missing))
			}
			if a.job == "" {
				a.job = jobName(args[0])
			}
			return a.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // arguments after the program are its own
	f.SortFlags = false
	f.StringVar(&a.job, "job", os.Getenv("CARILLON_JOB"),
		"the job's name, the same on all machines (default: the launcher's, or derived from the program's)")
	f.StringVar(&a.tapeDir, "tape-dir", "",
		"directory for the processes' tapes (default: CARILLON_TAPE_DIR, or one in memory)")
	choiceFlag(cmd, &a.how, "how", "how the program's NCCL calls reach the library: auto, preload or audit",
		wayAuto, wayPreload, wayAudit)
	a.acceptFlag(cmd)
	f.BoolVar(&a.printEnv, "print-env", false,
		"print the environment of a program for carillon agent to follow, and run none")
	complete(cmd, "job") // a new one has no known name
	_ = cmd.MarkFlagDirname("tape-dir")
	return cmd
}

// Values of --how.
const (
	wayAuto    = "auto"
	wayPreload = "preload"
	wayAudit   = "audit"
)

// linked tells whether a program itself is linked with NCCL, so that preload is enough.
func linked(path string) bool {
	f, err := elf.Open(path)
	if err != nil { // a script
		return false
	}
	defer f.Close()
	needed, _ := f.ImportedLibraries() // nil: it is static
	return slices.ContainsFunc(needed, func(name string) bool { return strings.HasPrefix(name, "libnccl.so") })
}

var notInLaunchers = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// jobName is the name that the launcher which started attach gives the job, so that it is the same on all machines.
// Without a launcher's name, it is the program's name and a random number.
func jobName(program string) string {
	world, err := launch.FromEnv(os.Getenv)
	if err == nil && world.Job != "" {
		return fmt.Sprintf("%.128s", notInLaunchers.ReplaceAllString(world.Job, "_"))
	}
	var tail [4]byte
	_, _ = rand.Read(tail[:]) // never fails
	return job.NameOf(program, tail)
}

// printEnvironment prints the variables that a program needs so that an agent can follow it, for programs that attach
// doesn't start. program may be empty.
func (a *attachFlags) printEnvironment(cmd *cobra.Command, program []string) error {
	path := ""
	if len(program) > 0 {
		var err error
		if path, err = exec.LookPath(program[0]); err != nil {
			return cannotRun(err)
		}
	}
	library, audit, err := findLibraries(cmd.ErrOrStderr(), a.how, path)
	if err != nil {
		return err
	}
	dir := cmp.Or(a.tapeDir, os.Getenv(tape.DirVariable))
	if dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	had := os.Environ()
	for _, v := range environment(had, library, audit, dir, a.job)[len(had):] {
		key, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(cmd.OutOrStdout(), "export %s=%s\n", key, shellWord(value))
	}
	return nil
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:,+@%-]+$`)

// shellWord quotes a value for a shell, if it needs that.
func shellWord(value string) string {
	if plainWord.MatchString(value) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// run runs a program, and an agent for its processes.
func (a *attachFlags) run(cmd *cobra.Command, program []string) error {
	path, err := exec.LookPath(program[0])
	if err != nil {
		return cannotRun(err)
	}
	note := cmd.ErrOrStderr()
	library, audit, err := findLibraries(note, a.how, path)
	if err != nil {
		return err
	}
	spare, err := sweepTapes(cmd, &job.Config{TapeDir: a.tapeDir, Quiet: true})
	if err != nil {
		return err
	}
	dir, err := makeJob(note, a.tapeDir, a.job)
	if err != nil {
		return err
	}
	a.tapeDir = dir
	if spare >= 0 {
		// The last job's tapes are kept, for its post-mortem. The less room is left, the smaller this job's tapes are.
		_ = tape.MakeRoom(dir, max(spare, 1))
	}
	signals := forwarded() // before the agent starts, so that no signal kills it
	agent, err := a.start(cmd.Context())
	if err != nil {
		return err
	}
	switch url := agent.URL(); {
	case agent.Waits():
		fmt.Fprintf(note, "carillon: attach: job %s; another agent on this host follows it\n", words.Line(a.job))
	case url != "":
		fmt.Fprintf(note, "carillon: attach: job %s; a page for each process is at %s\n", words.Line(a.job), url)
	}
	before := tapesIn(dir, a.job)
	child := exec.Cmd{
		Path: path, Args: program, Env: environment(os.Environ(), library, audit, dir, a.job),
		Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Stderr: note,
	}
	witnesses := newWitnesses()
	began := process.Monotonic()
	code, err := 0, child.Start()
	var told process.Entry // the last signal that told the program to end
	var end process.Entry  // how the program ended; without a PID, it didn't start
	var over atomic.Int64  // when the program ended
	stopSignals := takeSignals(signals, func(sig os.Signal) {
		if at := over.Load(); at > 0 && process.Monotonic()-at > int64(lateSignal) {
			return
		}
		if sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 && sig != syscall.SIGPIPE {
			told = process.Entry{Ended: unix.SignalName(sig.(syscall.Signal))}.Now()
			agent.Ending()
		}
		if err == nil && !witnesses.got(sig, child.Process.Pid) {
			_ = child.Process.Signal(sig) // the program may have ended
		}
	})
	if err == nil {
		_ = child.Wait() // ProcessState has the result
		end = process.Entry{
			Rank: -1, PID: child.Process.Pid, Program: true, Began: began,
			Exit: process.ExitOfStatus(child.ProcessState.Sys().(syscall.WaitStatus)),
		}.Now()
		over.Store(end.Mono)
		code = end.Exit.ShellCode()
	}
	if err != nil {
		fmt.Fprintf(note, "carillon: attach: %v\n", err)
		code = codeCannotRun
	} else if tapesIn(dir, a.job) == before {
		fmt.Fprintln(note, "carillon: attach: no communicator was seen; carillon attach --help says what can't be seen")
	}
	if err := agent.Stop(context.WithoutCancel(cmd.Context())); err != nil {
		fmt.Fprintf(note, "carillon: attach: %v\n", err)
	}
	stopSignals()
	witnesses.close()
	for _, e := range []process.Entry{end, told} {
		if e.PID != 0 || code != 0 && e.Ended != "" {
			for _, d := range tape.Dirs(dir) { // where tapes had no room, the entry has none either
				if process.AppendEntry(filepath.Join(d, a.job), e) == nil {
					break
				}
			}
		}
	}
	return exitCode(code)
}

// lateSignal is how long after its program's end attach still takes a signal for the cause: a signal to all processes
// at once may arrive here later.
const lateSignal = 500 * time.Millisecond

// takeSignals calls take for each signal, from another goroutine, until stop is called. stop waits for the last call.
func takeSignals(signals chan os.Signal, take func(os.Signal)) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sig := range signals {
			take(sig)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

// makeJob makes the folder of the job's tapes in the user's directory, or in the first default one where it can be
// made, and returns the directory.
func makeJob(note io.Writer, tapeDir, name string) (dir string, err error) {
	if err := tape.CheckJob(name); err != nil {
		return "", err
	}
	dirs := tape.Dirs(tapeDir)
	if cmp.Or(tapeDir, os.Getenv(tape.DirVariable)) != "" {
		dirs = dirs[:1]
	}
	var errs []error
	for _, dir := range dirs {
		if dir, err = filepath.Abs(dir); err == nil {
			err = tape.MakeJob(dir, name)
		}
		if err == nil {
			if len(errs) > 0 {
				fmt.Fprintf(note, "carillon: attach: tapes are in another directory, %s: %v\n", dir,
					errors.Join(errs...))
			}
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// tapesIn is the number of a job's tapes, in dir or in the fallback for a full one.
func tapesIn(dir, name string) (n int) {
	for _, dir := range tape.Dirs(dir) {
		paths, _ := filepath.Glob(filepath.Join(dir, name, "*.tape"))
		n += len(paths)
	}
	return n
}

// environment adds variables to env: those that load the library and, unless its path is empty, the audit library, and
// those that name the job and the directory of its tapes, unless these are empty.
func environment(env []string, library, audit, dir, name string) []string {
	had := map[string]string{}
	for _, v := range env {
		key, value, _ := strings.Cut(v, "=")
		had[key] = value
	}
	before := func(key, library, separator string) string { // puts library in front of those in the variable's list
		if had[key] != "" {
			library += separator + had[key]
		}
		return key + "=" + library
	}
	env = slices.Clone(env)
	for _, v := range [][2]string{{"CARILLON_JOB", name}, {tape.DirVariable, dir}} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1])
		}
	}
	env = append(env, before("LD_PRELOAD", library, ":"), "NCCL_PROFILER_PLUGIN="+library)
	if audit != "" {
		env = append(env, before("LD_AUDIT", audit, ":"))
	}
	if plugin := cmp.Or(had["NCCL_PROFILER_PLUGIN"], defaultPlugin); plugin != library {
		env = append(env, before("CARILLON_PROFILER_NEXT", plugin, ","))
	}
	return env // exec.Cmd takes the last value of a repeated variable
}

// findLibraries finds the library, and the audit library if calls of the program at path need it. path is empty if the
// program is unknown.
func findLibraries(note io.Writer, how, path string) (library, audit string, err error) {
	if library, err = findLibrary(); err != nil || how == wayPreload || how == wayAuto && linked(path) {
		return library, "", err
	}
	audit = filepath.Join(filepath.Dir(library), auditName)
	if err = checkLibrary(audit, "la_symbind64"); err == nil {
		return library, audit, nil
	}
	if how == wayAudit {
		return "", "", fmt.Errorf("%s can't be used: %w", audit, err)
	}
	fmt.Fprintf(note, "carillon: attach: %s can't be used: %v; calls of NCCL that the program looks up by dlsym are "+
		"not seen (as with --how preload)\n", audit, err)
	return library, "", nil
}

// findLibrary finds and checks the library, and returns its path.
func findLibrary() (string, error) {
	path := os.Getenv(libraryVariable)
	if path == "" {
		program, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find %s: %w", libraryName, err)
		}
		if program, err = filepath.EvalSymlinks(program); err != nil {
			return "", fmt.Errorf("find %s: %w", libraryName, err)
		}
		path = filepath.Join(filepath.Dir(program), libraryName)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("there is no %s; make build makes it, and %s has the path of one that lies elsewhere",
				path, libraryVariable)
		}
	}
	path, err := filepath.Abs(path)
	if err == nil {
		err = checkLibrary(path, ours...)
	}
	if err != nil {
		return "", fmt.Errorf("%s can't be used: %w (%s has the path of another one)", path, err, libraryVariable)
	}
	return path, nil
}

// ours are an NCCL function and a profiler plug-in symbol. Only this library has both.
var ours = []string{"ncclCommDestroy", "ncclProfiler_v1"}

// machines are the processors for which the library is built.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkLibrary tells why the loader would ignore a library, or which function it lacks.
func checkLibrary(path string, functions ...string) error {
	if strings.ContainsAny(path, ": \t\n") {
		return errors.New("its path has a colon or a blank, which LD_PRELOAD takes for the end of a path")
	}
	f, err := elf.Open(path)
	if wrong := (*elf.FormatError)(nil); errors.As(err, &wrong) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is no library")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Machine != machines[runtime.GOARCH] {
		return fmt.Errorf("it is for another processor, %v", f.Machine)
	}
	symbols, _ := f.DynamicSymbols() // nil: it lacks the functions
	for _, want := range functions {
		has := func(s elf.Symbol) bool { return s.Name == want && s.Section != elf.SHN_UNDEF }
		if !slices.ContainsFunc(symbols, has) {
			return fmt.Errorf("it is a library, but not Carillon's: it has no %s", want)
		}
	}
	return nil
}

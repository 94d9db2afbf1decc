package tape

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process"
)

// childVariable makes the test binary play another process instead of running tests; its value says which.
const childVariable = "CARILLONTEST_TAPE_CHILD"

// children are the programs that the test binary can play. Their arguments come in the environment's TAPE_…; they talk
// on stdin and stdout.
var children = map[string]func(dir string) error{
	"writer": writerChild,
	"full":   func(dir string) error { return createOn(dir, "size=1m") },
	"ro":     func(dir string) error { return createOn(dir, "ro") },
	"busy":   busyChild,
}

func runChild(name string) int {
	child, ok := children[name]
	if !ok {
		fmt.Println("no child", name)
		return 2
	}
	if err := child(os.Getenv("TAPE_DIR")); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// child is another process that writes a tape.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startChild(t *testing.T, name, dir string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(exe)}
	// The race detector makes a process linger for a second at its end, if nobody objects.
	c.Env = append(os.Environ(), childVariable+"="+name, "TAPE_DIR="+dir, "GORACE=atexit_sleep_ms=0")
	c.SysProcAttr = attr
	c.Stderr = os.Stderr
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// line is the next line that the child prints.
func (c *child) line(t *testing.T) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatalf("the child says nothing more: %v", c.out.Err())
	}
	return c.out.Text()
}

// writerChild makes a tape, prints its path, and for each line of its input does an operation, or closes the tape.
func writerChild(dir string) error {
	w, err := Create(Config{Dir: dir})
	if err != nil {
		return err
	}
	c := w.Comm(CommInfo{ID: lifecycle.CommID{7}, Name: "world", Rank: 1, Size: 4})
	c.State(lifecycle.StateReady)
	c.Life(LifeRecord{Act: ActInit, Stage: StageEnd, State: lifecycle.StateReady, Peer: -1})
	fmt.Println(w.Path())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "op":
			seq := c.Start(0, allReduce, 1)
			c.Wait(3)
			fmt.Println(seq)
		case "close":
			return w.Close()
		}
	}
	return nil
}

// A process is killed: its follower learns it at once, and its last acts are still on the tape.
func TestKilledWriter(t *testing.T) {
	c := startChild(t, "writer", t.TempDir(), nil)
	path := c.line(t)
	f := follow(t, path, neverTick)
	if l := f.Liveness(); l != process.Alive {
		t.Errorf("it is %v", l)
	}
	ev, err := f.Next(t.Context())
	if err != nil || ev.Life.Act != ActInit || ev.Comm.Name != "world" {
		t.Fatalf("the first event is %+v, %v", ev, err)
	}
	fmt.Fprintln(c.in, "op")
	c.line(t)
	killed := Now()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []Stage{StageStart, StageWait} {
		if ev, err := f.Next(t.Context()); err != nil || ev.Op.Stage != stage {
			t.Fatalf("got %+v, %v, want %v", ev.Op, err, stage)
		}
	}
	if _, err := f.Next(t.Context()); !errors.Is(err, ErrDied) {
		t.Errorf("the end is %v", err)
	}
	t.Logf("known after %v", time.Duration(Now()-killed))
	_ = c.Wait()

	r := openTape(t, path)
	if l := r.Liveness(); l != process.Dead || r.Header().Closed || r.Header().PID != c.Process.Pid {
		t.Errorf("it is %v, %+v", l, r.Header())
	}
	slots := r.Slots()
	if len(slots) != 1 || slots[0].Launched != 1 || slots[0].Completed != 0 || slots[0].Wait != 3 ||
		slots[0].State != lifecycle.StateReady {
		t.Errorf("its last moment: %+v", slots)
	}
	if n := len(all(t, r)); n != 3 {
		t.Errorf("%d events of 3", n)
	}
	if err := sweep(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was not swept: %v", path, err)
	}
}

// A process that closes its tape before it ends did not die.
func TestClosedWriter(t *testing.T) {
	c := startChild(t, "writer", t.TempDir(), nil)
	f := follow(t, c.line(t), neverTick)
	if _, err := f.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sweep(filepath.Dir(f.Path())); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.Path()); err != nil {
		t.Errorf("the tape of a living process was swept: %v", err)
	}
	fmt.Fprintln(c.in, "close")
	if _, err := f.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("the end is %v", err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := f.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("the end is %v, asked again", err)
	}
}

// A process that closes its tape and exits between two checks of a follower did not die either.
func TestClosedInBetween(t *testing.T) {
	c := startChild(t, "writer", t.TempDir(), nil)
	f := follow(t, c.line(t), 0)
	if err := f.ending(); err != nil {
		t.Errorf("it has ended: %v", err)
	}
	fmt.Fprintln(c.in, "close")
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	for !f.died.Load() {
		runtime.Gosched()
	}
	if err := f.ending(); !errors.Is(err, ErrClosed) {
		t.Errorf("the end is %v", err)
	}
}

// busyRecords is how many records busyChild writes, at about a million a second.
const busyRecords = 1_000_000

func busyChild(dir string) error {
	w, err := Create(Config{Dir: dir, SampleEvery: 1})
	if err != nil {
		return err
	}
	c := w.Comm(CommInfo{ID: lifecycle.CommID{7}, Name: "world"})
	fmt.Println(w.Path())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	begin := Now()
	for n := int64(0); n < busyRecords; n++ {
		for Now()-begin < n*1000 { // a microsecond a record
			continue
		}
		c.End(c.Start(0, allReduce, 1), 0)
	}
	fmt.Println(busyRecords * 1e9 / (Now() - begin))
	return w.Close()
}

// Another process writes a million records a second; the follower sees every one, or knows how many it missed.
func TestFollowMillion(t *testing.T) {
	c := startChild(t, "busy", t.TempDir(), nil)
	f := follow(t, c.line(t), 0)
	fmt.Fprintln(c.in)
	events := make([]Event, 512)
	seen := uint64(0)
	for {
		n, err := f.Read(t.Context(), events)
		if errors.Is(err, ErrClosed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events[:n] {
			if want := seen + 1; f.Missed().Op == 0 && ev.Op.Seq != want {
				t.Fatalf("record %d is of operation %d, not %d", seen, ev.Op.Seq, want)
			}
			seen++
		}
	}
	rate, err := strconv.Atoi(c.line(t))
	if err != nil {
		t.Fatal(err)
	}
	missed := f.Missed()
	t.Logf("%d records a second, missed %d of %d", rate, missed.Op, busyRecords)
	if seen+missed.Op != busyRecords {
		t.Errorf("saw %d and missed %d of %d", seen, missed.Op, busyRecords)
	}
	// How many are missed depends on the machine, which may give the follower no core for longer than the ring lasts.
	// The test checks that they are counted.
	if seen < readBatch {
		t.Errorf("saw only %d", seen)
	}
}

// createOn makes a tape on a small file system of its own, which only a process with its own mounts can have.
func createOn(dir, options string) error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	flags := uintptr(0)
	if options == "ro" {
		flags, options = unix.MS_RDONLY, ""
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, strings.TrimPrefix("mode=0700,"+options, ",")); err != nil {
		return fmt.Errorf("mount of a tmpfs: %w", err)
	}
	_, err := Create(Config{Dir: dir})
	if err == nil {
		return errors.New("it was created")
	}
	left, err2 := filepath.Glob(filepath.Join(dir, "*", "*"))
	dots, _ := filepath.Glob(filepath.Join(dir, "*", ".*"))
	fmt.Printf("%v [%d files left]\n", err, len(left)+len(dots))
	return err2
}

// A full and a read-only file system are reported at once, and nothing is left behind.
func TestCreateWithoutRoom(t *testing.T) {
	for _, tt := range []struct {
		child string
		err   error
		says  string
	}{
		{"full", unix.ENOSPC, "has no room for a tape of 6758400 bytes"},
		{"ro", unix.EROFS, "can't be created"},
	} {
		t.Run(tt.child, func(t *testing.T) {
			c := startChild(t, tt.child, t.TempDir(), &syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
				UidMappings: idMap(os.Getuid()),
				GidMappings: idMap(os.Getgid()),
			})
			line := c.line(t)
			if !strings.Contains(line, tt.says) || !strings.Contains(line, tt.err.Error()) ||
				!strings.Contains(line, DirVariable) {
				t.Errorf("it says %q, which lacks %q, %q or the cure", line, tt.says, tt.err)
			}
			if !strings.Contains(line, "[0 files left]") {
				t.Errorf("it left something behind: %q", line)
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// idMap makes this user root in the namespace of its own that a child gets.
func idMap(id int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
}

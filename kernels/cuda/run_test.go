package cuda

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A host runs kernels on host memory, under ThreadSanitizer: see testdata/run.cc.
type host struct {
	t     testing.TB
	in    io.WriteCloser
	out   *bufio.Reader
	arena uint64
	next  uint64
}

const arenaBytes = 64 << 20

// runner is the path of the program that runs kernels.
var runner []string

// TestMain compiles the runner.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "carillon-kernels-")
	if err != nil {
		panic(err)
	}
	program := filepath.Join(dir, "run")
	sources, err := filepath.Glob("*.cu")
	if err != nil {
		panic(err)
	}
	compile := exec.Command("g++", "-std=c++20", "-O1", "-fsanitize=thread", "-ffp-contract=off", "-rdynamic", "-Wall",
		"-Wextra", "-Werror", "-Wno-tsan", "-Wno-maybe-uninitialized", "-o", program, "-ldl", "-lpthread",
		"testdata/run.cc", "-x", "c++")
	compile.Args = append(compile.Args, sources...)
	if out, err := compile.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "g++: %v (Debian: apt-get install g++)\n%s", err, out)
		os.Exit(1)
	}
	runner = []string{program}
	// Older ThreadSanitizers don't start if the kernel randomizes addresses in more than 28 bits.
	if exec.Command("setarch", "-R", "true").Run() == nil {
		runner = []string{"setarch", "-R", program}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// newHost starts the runner.
func newHost(t testing.TB) *host {
	t.Helper()
	for _, pattern := range []string{"*.cu", "*.h", "testdata/*"} { // for go test, whose result depends on these
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			if _, err := os.Stat(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.Command(runner[0], runner[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil { // ThreadSanitizer's own status, if it found something
			t.Error(err)
		}
	})
	h.arena = binary.NativeEndian.Uint64(h.read(8))
	return h
}

func (h *host) read(n int) []byte {
	b := make([]byte, n)
	if _, err := io.ReadFull(h.out, b); err != nil {
		h.t.Fatalf("the program that runs kernels ended: %v", err)
	}
	return b
}

func (h *host) send(parts ...any) {
	var b bytes.Buffer
	for _, p := range parts {
		if err := binary.Write(&b, binary.NativeEndian, p); err != nil {
			h.t.Fatal(err)
		}
	}
	if _, err := h.in.Write(b.Bytes()); err != nil {
		h.t.Fatalf("the program that runs kernels ended: %v", err)
	}
}

// alloc returns the address of zeroed memory.
func (h *host) alloc(bytes int) uint64 {
	at := h.arena + h.next
	h.next += uint64(bytes+63) &^ 63
	if h.next > arenaBytes {
		h.t.Fatal("the arena is full")
	}
	h.put(at, make([]byte, bytes))
	return at
}

// reset forgets what was allocated.
func (h *host) reset() { h.next = 0 }

func (h *host) put(at uint64, data []byte) { h.send(byte('W'), at, uint64(len(data)), data) }

func (h *host) get(at uint64, bytes int) []byte {
	h.send(byte('R'), at, uint64(bytes))
	return h.read(bytes)
}

// A launch is a launch of a kernel by all ranks.
type launch struct {
	function string
	grid     Grid
	ranks    []ExchangeArgs
}

// start makes each rank run its part of some launches, one after the other, as a stream does.
func (h *host) start(launches ...launch) {
	h.send(byte('L'), uint64(len(launches[0].ranks)), uint64(len(launches)))
	for _, l := range launches {
		name := []byte(l.function + "_host")
		h.send(uint64(l.grid.Blocks), uint64(l.grid.Threads), uint64(len(name)), name, l.ranks)
	}
}

// launch starts a kernel on some ranks.
func (h *host) launch(function string, grid Grid, ranks ...ExchangeArgs) {
	h.start(launch{function, grid, ranks})
}

// running returns how many ranks have not finished their launches.
func (h *host) running() int {
	h.send(byte('P'))
	return int(binary.NativeEndian.Uint64(h.read(8)))
}

// join waits for all launches.
func (h *host) join() {
	h.send(byte('J'))
	h.read(1)
}

// words returns a rank's last launch of which all blocks are done, and what its block with the highest phase waits for,
// or why a block has given up.
func (h *host) words(a Args) (done, waits Word) {
	all := make([]Words, MaxBlocks)
	if err := binary.Read(bytes.NewReader(h.get(a.Words, 32*MaxBlocks)), binary.NativeEndian, &all); err != nil {
		h.t.Fatal(err)
	}
	for _, w := range all {
		if w.Waits.Number > waits.Number || w.Waits.Number == waits.Number && w.Waits.Phase > waits.Phase {
			waits = w.Waits
		}
	}
	var end Word
	if err := binary.Read(bytes.NewReader(h.get(a.Words-16, 16)), binary.NativeEndian, &end); err != nil {
		h.t.Fatal(err)
	}
	if end.Phase != Done {
		waits = end
	}
	done = all[0].Done
	for _, w := range all[:done.Blocks] {
		if w.Done.Number < done.Number {
			done.Number--
			break
		}
	}
	return done, waits
}

const (
	// slot and channels are small, so that few bytes take several steps on several channels.
	slot     = 32
	channels = 2
	threads  = 3
)

// communicator allocates the memory that ranks need, and returns parameters with it.
func (h *host) communicator(ranks, half int) []ExchangeArgs {
	half = (half + HalfUnit - 1) / HalfUnit * HalfUnit
	windows := make([]uint64, ranks)
	for r := range windows {
		windows[r] = h.alloc(WindowBytes(ranks, half, slot))
	}
	abort := h.alloc(4)
	all := make([]ExchangeArgs, ranks)
	for r := range all {
		all[r].Args = Args{
			Rank: uint32(r), Ranks: uint32(ranks), Signature: 42, SendTo: 1<<ranks - 1, RecvFrom: 1<<ranks - 1,
			State: h.alloc(StateBytes), Half: uint64(half), Words: h.alloc(16+32*MaxBlocks) + 16, Abort: abort,
			Slot: slot, Channels: channels,
			Tells:     1,
			Operation: 3, // makes the kernels number the launches
		}
		copy(all[r].Window[:], slices.Concat(windows[r:], windows[:r]))
	}
	return all
}

// grid returns the smallest grid for a kernel on the given number of bytes.
func grid(k Kernel, a *Args, bytes int) Grid {
	return GridFor(k, a, bytes, Grid{Blocks: 2, Threads: threads})
}

func encode(v any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

// await polls until a condition holds.
func (h *host) await(so func() bool) {
	for !so() {
	}
}

// waitsFor polls a rank's words until they report a phase.
func (h *host) waitsFor(a Args, phase Phase) (w Word) {
	h.await(func() bool { _, w = h.words(a); return w.Phase == phase })
	return w
}

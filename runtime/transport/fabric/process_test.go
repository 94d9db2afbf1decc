package fabric_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/door"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// childVariable is the environment variable that carries a job to a process that the tests start from their own binary.
const childVariable = "CARILLONTEST_FABRIC_CHILD"

// greeting is sent to rank 1 by the program of that name before it ends.
const greeting = "I have been here"

// job is what a child does: it connects and runs a program as one rank.
type job struct {
	Program string // the name of a case, "pong N", "sink N", "forward" or "greeting"
	Rank    int
	Size    int
	Config  fabric.Config
}

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childVariable); ok {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child runs one rank. Cards are exchanged as lines of hexadecimal digits.
func child(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	f, err := fabric.New(j.Config)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, stop := context.WithTimeout(context.Background(), 90*time.Second)
	defer stop()
	port, err := f.Prepare(processComm(), secret(), j.Size, false)
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(port.Card()))
	cards, err := readCards(os.Stdin, j.Size)
	if err != nil {
		return err
	}
	l, err := port.Connect(ctx, lifecycle.CommID{}, j.Rank, cards)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := j.run(ctx, l); err != nil {
		return fmt.Errorf("rank %d, %s: %w", j.Rank, j.Program, err)
	}
	return nil
}

func (j job) run(ctx context.Context, l *fabric.Links) error {
	var size int
	if _, err := fmt.Sscanf(j.Program, "pong %d", &size); err == nil {
		return Peer(ctx, l, size)
	}
	if _, err := fmt.Sscanf(j.Program, "sink %d", &size); err == nil {
		return Sink(ctx, l, size)
	}
	switch j.Program {
	case "forward":
		return Forward(ctx, l)
	case "greeting":
		return Send(ctx, l, 1, []byte(greeting))
	}
	for _, c := range Cases() {
		if c.Name == j.Program {
			return c.Run(ctx, l)
		}
	}
	return fmt.Errorf("no program %q", j.Program)
}

func processComm() lifecycle.CommID { return lifecycle.RootCommID(lifecycle.UniqueID{2: 2}) }

func readCards(r io.Reader, n int) ([][]byte, error) {
	lines := bufio.NewScanner(r)
	var cards [][]byte
	for len(cards) < n && lines.Scan() {
		card, err := hex.DecodeString(lines.Text())
		if err != nil {
			return nil, err
		}
		cards = append(cards, card)
	}
	if len(cards) < n {
		return nil, fmt.Errorf("got %d cards of %d", len(cards), n)
	}
	return cards, lines.Err()
}

// offspring is a child process and its pipes.
type offspring struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	stderr strings.Builder
}

// start starts the child that is to be rank of a program.
func start(tb testing.TB, j job) *offspring {
	tb.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		tb.Fatal(err)
	}
	o := &offspring{cmd: exec.Command(os.Args[0])}
	// Without the second setting, a program with the race detector lingers for a second at its end.
	o.cmd.Env = append(os.Environ(), childVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	o.cmd.Stderr = &o.stderr
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if o.out, err = o.cmd.StdoutPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return o
}

// launch makes this process rank 0 of a program and starts children for the others. Its second result waits for the
// children's end and returns what they printed, and when the first ended.
func launch(tb testing.TB, config fabric.Config, program string, size int) (
	_ *fabric.Links, wait func() (said string, first time.Time),
) {
	tb.Helper()
	f := newFabric(tb, of(config, 0))
	port, err := f.Prepare(processComm(), secret(), size, false)
	if err != nil {
		tb.Fatal(err)
	}
	cards := [][]byte{port.Card()}
	var children []*offspring
	for rank := 1; rank < size; rank++ {
		children = append(children, start(tb, job{Program: program, Rank: rank, Size: size, Config: of(config, rank)}))
	}
	for _, c := range children {
		card, err := readCards(c.out, 1)
		if err != nil {
			tb.Fatal(err, c.stderr.String())
		}
		cards = append(cards, card...)
	}
	var text strings.Builder
	for _, card := range cards {
		fmt.Fprintln(&text, hex.EncodeToString(card))
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, text.String()); err != nil {
			tb.Fatal(err)
		}
		_ = c.in.Close()
	}
	ctx, stop := context.WithTimeout(tb.Context(), 30*time.Second)
	defer stop()
	l, err := port.Connect(ctx, lifecycle.CommID{}, 0, cards)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	ends := make(chan time.Time, len(children))
	for _, c := range children {
		go func() {
			_ = c.cmd.Wait() // a case may have killed it; what went wrong is on its stderr
			ends <- time.Now()
		}()
	}
	wait = sync.OnceValues(func() (string, time.Time) {
		first := <-ends
		for range children[1:] {
			<-ends
		}
		var said strings.Builder
		for _, c := range children {
			said.WriteString(c.stderr.String())
		}
		return said.String(), first
	})
	tb.Cleanup(func() { l.Close(); wait() })
	return l, wait
}

// processConfigs are the configurations for processes of one host.
func processConfigs() map[string]fabric.Config {
	return map[string]fabric.Config{
		"shm": {}, "tcp": {DisableSHM: true},
		"encrypt": {DisableSHM: true, Wire: door.Encrypt}, // TestConformanceInOneProcess covers authentication alone
		"pxn":     {HostID: twoNodes}, "pxn, encrypt": {HostID: twoNodes, Wire: door.Encrypt},
	}
}

func TestConformanceBetweenProcesses(t *testing.T) {
	for name, config := range processConfigs() {
		for _, c := range Cases() {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				l, wait := launch(t, config, c.Name, c.Size)
				if got := l.Topology().Transport[1]; (got == "tcp") != (config.DisableSHM || config.HostID != "") {
					t.Fatalf("ranks are connected by %s", got)
				}
				ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
				defer stop()
				if err := c.Run(ctx, l); err != nil {
					t.Errorf("rank 0: %v", err)
				}
				over := time.Now()
				l.Close()
				said, died := wait()
				if said != "" {
					t.Error(said)
				}
				if took := over.Sub(died); c.Dies && took > 2*time.Second {
					t.Errorf("it took %v to see the death", took)
				}
			})
		}
	}
}

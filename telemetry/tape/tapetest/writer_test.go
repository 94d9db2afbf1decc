package tapetest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// dirVariable makes the test binary be the writer under test: another process, as any writer is.
const dirVariable = "TAPETEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		if err := play(dir, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestGoWriter(t *testing.T) {
	runSuite(t, func(t *testing.T, script io.Reader) string {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := exec.Command(exe)
		// The race detector makes a process linger for a second at its end, if nobody objects.
		cmd.Env = append(os.Environ(), dirVariable+"="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = script, &out, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out.String())
	})
}

// play is the Go writer's player.
func play(dir string, script io.Reader) error {
	w, err := tape.Create(tape.Config{Dir: dir, Slots: 4, LifeRecords: 256, OpRecords: 256})
	if err != nil {
		return err
	}
	fmt.Println(w.Path())
	comms := make(map[int]*tape.CommWriter)
	infos := make(map[int]tape.CommInfo)
	lines := bufio.NewScanner(script)
	for lines.Scan() {
		var n int
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if word == "crash" {
			return nil
		}
		number, rest, _ := strings.Cut(rest, " ")
		if _, err := fmt.Sscan(number, &n); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		c := comms[n]
		switch word {
		case "comm":
			var id, parent string
			var info tape.CommInfo
			_, err = fmt.Sscan(rest, &id, &parent, &info.Name, &info.Rank, &info.Size, &info.Nodes, &info.Engine)
			if err == nil {
				info.ID, err = lifecycle.ParseCommID(id)
			}
			if err == nil {
				info.Parent, err = lifecycle.ParseCommID(parent)
			}
			comms[n], infos[n] = w.Comm(info), info
		case "describe":
			info := infos[n]
			_, err = fmt.Sscan(rest, &info.Name, &info.Nodes, &info.Engine)
			c.Describe(info)
		case "from":
			var parent int
			_, err = fmt.Sscan(rest, &parent)
			c.From(comms[parent])
		case "state":
			var state lifecycle.State
			_, err = fmt.Sscan(rest, &state)
			c.State(state)
		case "life", "shared":
			r := tape.LifeRecord{Shared: word == "shared"}
			in := strings.NewReader(rest)
			_, err = fmt.Fscan(in, &r.Act, &r.Call, &r.Stage, &r.Seq, &r.Phase, &r.Code, &r.State, &r.Peer)
			text, _ := io.ReadAll(in)
			r.Text = strings.TrimSpace(string(text))
			c.Life(r)
		case "start":
			var sig tape.Signature
			var algorithm uint8
			_, err = fmt.Sscan(rest, &sig.Call, &sig.DataType, &sig.Reduction, &sig.Peer, &sig.Bytes, &algorithm)
			c.Start(0, sig, algorithm)
		case "phase":
			var p tape.Phase
			_, err = fmt.Sscan(rest, &p)
			c.Phase(p)
		case "wait":
			var peer int32
			_, err = fmt.Sscan(rest, &peer)
			c.Wait(peer)
		case "end":
			var seq uint64
			var code lifecycle.Code
			_, err = fmt.Sscan(rest, &seq, &code)
			c.End(seq, code)
		case "close":
			c.Close()
		default:
			return fmt.Errorf("no such step: %q", lines.Text())
		}
		if err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return w.Close()
}

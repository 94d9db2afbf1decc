package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// TestScenarios plays the files in testdata/any. All ranks run a command concurrently, each on its own permanent
// goroutine, and the next command begins when all are done. Ranks with the same answer share a line. The commands:
//
//	job ranks=N [nodes=M]                    begins: one process of N ranks, or N processes on M nodes with TCP
//	                                         between
//	init COMM [nonblocking]                  InitRank
//	split COMM color=E [key=E] as=NAME       Split; E is a number, none, or a term such as rank%2, rank/2, -rank
//	shrink COMM exclude=(R,…) [abort] as=NAME
//	allreduce|allgather|barrier COMM         makes an operation and shows the result
//	allreduce COMM as=OP                     starts it in the background; "result OP" waits for it
//	group                                    makes the operations and splits of the input's lines in a group
//	abort|revoke COMM [why=(TEXT)]
//	destroy|finalize|close|wait|async-error|state|topology COMM
//	live                                     how many communicators there are
//
// Options of all commands: on=(R,…) restricts a command to these ranks, goroutine=other makes the call from a new
// goroutine, at=destructor from a function of that name, and patience=D bounds the call's context.
func TestScenarios(t *testing.T) { playAll(t, "testdata/any") }

func playAll(t *testing.T, dir string) {
	t.Helper()
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		p := &player{ids: map[string]ccl.UniqueID{}}
		datadriven.RunTest(t, path, p.do)
	})
}

// player runs the job of a scenario.
type player struct {
	members []*member
	ids     map[string]ccl.UniqueID // of the root communicators
}

// member is one rank of the job.
type member struct {
	t        *testing.T
	rank, of int
	rt       *ccl.Runtime
	comms    map[string]*ccl.Comm // nil for a rank that got none
	works    map[string]*ccl.Work
	todo     chan func() // for the rank's goroutine
}

// do makes the ranks run a command and returns their answers, merging equal ones into one line.
func (p *player) do(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "job" {
		p.begin(t, d)
		return "ok"
	}
	var on []int
	var goroutine string
	d.MaybeScanArgs(t, "on", &on)
	d.MaybeScanArgs(t, "goroutine", &goroutine)
	answers := make([]string, len(p.members))
	var wg sync.WaitGroup
	for r, m := range p.members {
		if on != nil && !slices.Contains(on, r) {
			continue
		}
		c := p.call(t, d, m)
		wg.Add(1)
		do := func() {
			defer wg.Done()
			answers[r] = m.do(c)
		}
		if goroutine == "other" {
			go do()
		} else {
			m.todo <- do
		}
	}
	wg.Wait()
	return merged(answers)
}

// merged has a line for each answer, prefixed with the ranks if they differ. A rank that was not asked has the answer
// "".
func merged(answers []string) string {
	var lines []string
	for r, a := range answers {
		if a == "" || slices.Index(answers, a) < r {
			continue
		}
		var ranks []string
		for other, b := range answers {
			if a == b {
				ranks = append(ranks, strconv.Itoa(other))
			}
		}
		switch len(ranks) {
		case len(answers):
			return a
		case 1:
			lines = append(lines, fmt.Sprintf("rank %d: %s", r, a))
		default:
			lines = append(lines, fmt.Sprintf("ranks %s: %s", strings.Join(ranks, ", "), a))
		}
	}
	return strings.Join(lines, "\n")
}

func (p *player) begin(t *testing.T, d *datadriven.TestData) {
	var n, nodes int
	d.ScanArgs(t, "ranks", &n)
	var shared *ccl.Runtime
	if !d.MaybeScanArgs(t, "nodes", &nodes) {
		shared = newRuntime(t, ccl.Config{})
	}
	for r := range n {
		m := &member{t: t, rank: r, of: n, rt: shared, todo: make(chan func())}
		m.comms, m.works = map[string]*ccl.Comm{}, map[string]*ccl.Work{}
		if shared == nil {
			node := fabric.Config{HostID: fmt.Sprintf("node %d", r*nodes/n), SocketIfname: "lo"}
			m.rt = newRuntime(t, ccl.Config{Fabric: node})
		}
		p.members = append(p.members, m)
		go func() {
			for do := range m.todo {
				do()
			}
		}()
		t.Cleanup(func() { close(m.todo) })
	}
}

// call is a command as made by one rank.
type call struct {
	verb, name, as                    string
	id                                ccl.UniqueID // for init
	comm                              *ccl.Comm
	color, key                        int
	exclude                           []int
	why                               error
	nonblocking, aborting, destructor bool
	patience                          time.Duration // a scenario that hangs ends with it
	inner                             []call        // of a group
}

// call parses a command for a rank.
func (p *player) call(t *testing.T, d *datadriven.TestData, m *member) call {
	c := call{verb: d.Cmd, patience: 20 * time.Second}
	c.nonblocking, c.aborting, c.destructor = d.HasArg("nonblocking"), d.HasArg("abort"), d.HasArg("at")
	d.MaybeScanArgs(t, "as", &c.as)
	d.MaybeScanArgs(t, "exclude", &c.exclude)
	d.MaybeScanArgs(t, "patience", &c.patience)
	c.color, c.key = m.term(t, d, "color"), m.term(t, d, "key")
	var why string
	if d.MaybeScanArgs(t, "why", &why) {
		c.why = errors.New(why)
	}
	for line := range strings.Lines(d.Input) {
		inner := datadriven.TestData{Pos: d.Pos}
		var err error
		if inner.Cmd, inner.CmdArgs, err = datadriven.ParseLine(line); err != nil {
			d.Fatalf(t, "%v", err)
		}
		c.inner = append(c.inner, p.call(t, &inner, m))
	}
	if c.verb == "live" || c.verb == "group" {
		return c
	}
	if len(d.CmdArgs) == 0 {
		d.Fatalf(t, "%s needs a name, and a job before it", c.verb)
	}
	c.name = d.CmdArgs[0].Key
	var known bool
	switch c.verb {
	case "init":
		if c.id, known = p.ids[c.name]; !known {
			var err error
			if c.id, err = m.rt.NewUniqueID(); err != nil {
				d.Fatalf(t, "%v", err)
			}
			p.ids[c.name] = c.id
		}
	case "result":
		if m.works[c.name] == nil {
			d.Fatalf(t, "rank %d has not started %s", m.rank, c.name)
		}
	default:
		if c.comm, known = m.comms[c.name]; !known {
			d.Fatalf(t, "rank %d has no communicator %s", m.rank, c.name)
		}
	}
	return c
}

// term parses a number that may depend on the rank.
func (m *member) term(t *testing.T, d *datadriven.TestData, key string) int {
	s := "0"
	d.MaybeScanArgs(t, key, &s)
	switch s {
	case "none":
		return ccl.NoColor
	case "-rank":
		return -m.rank
	}
	op, depends := strings.CutPrefix(s, "rank")
	n, err := strconv.Atoi(strings.TrimLeft(op, "%/"))
	switch {
	case err != nil:
		d.Fatalf(t, "%q is no term", s)
	case depends && op[0] == '%':
		return m.rank % n
	case depends:
		return m.rank / n
	}
	return n
}

// do makes one call, and returns its outcome.
func (m *member) do(c call) string {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	answer, err := m.call(ctx, c)
	switch {
	case err == nil:
		return mask(answer)
	case errors.Is(err, ccl.ErrInProgress) && err.Error() == ccl.ErrInProgress.Error():
		return "in progress"
	default:
		return mask(err.Error())
	}
}

// call makes a call. An operation's result says which ranks took part: the sum of 10 to the power of the rank in the
// job, or the list of these ranks.
func (m *member) call(ctx context.Context, c call) (string, error) {
	one, sum := []int64{1}, make([]int64, 1)
	for range m.rank {
		one[0] *= 10
	}
	switch c.verb {
	case "live":
		return fmt.Sprint(m.rt.Live()), nil
	case "group":
		return "ok", m.rt.Group(ctx, func(g *ccl.Group) error {
			for _, inner := range c.inner {
				if _, err := m.call(g, inner); err != nil && !errors.Is(err, ccl.ErrInProgress) {
					return err
				}
			}
			return nil
		})
	case "init":
		opts := []ccl.Option{ccl.WithName(c.name)}
		if c.nonblocking {
			opts = append(opts, ccl.NonBlocking())
		}
		comm, err := m.rt.InitRank(ctx, c.id, m.of, m.rank, opts...)
		if m.comms[c.name] = comm; err == nil && (comm.Rank() != m.rank || comm.Size() != m.of) {
			return comm.String(), nil
		}
		return "ok", err
	case "split":
		child, err := c.comm.Split(ctx, c.color, c.key, ccl.WithName(c.as))
		return m.keep(c.as, child, err)
	case "shrink":
		child, err := m.shrink(ctx, c)
		return m.keep(c.as, child, err)
	case "allreduce":
		if c.as != "" {
			m.works[c.as] = ccl.IAllReduce(context.WithoutCancel(ctx), c.comm, one, sum, ccl.Sum)
			return "started", nil
		}
		err := ccl.AllReduce(ctx, c.comm, one, sum, ccl.Sum)
		return fmt.Sprintf("sum %d", sum[0]), err
	case "allgather":
		all := make([]int64, max(c.comm.Size(), 1))
		err := ccl.AllGather(ctx, c.comm, []int64{int64(m.rank)}, all)
		return fmt.Sprintf("of %v", all), err
	case "barrier":
		return "ok", ccl.Barrier(ctx, c.comm)
	case "result":
		return "ok", m.works[c.name].Wait(ctx)
	case "destroy":
		if c.destructor {
			return "ok", m.destructor(ctx, c.comm)
		}
		return "ok", m.destroy(ctx, c.comm)
	case "finalize":
		return "ok", m.finalize(ctx, c.comm)
	case "abort":
		return "ok", m.abort(c.comm, c.why)
	case "revoke":
		return "ok", m.revoke(c.comm, c.why)
	case "close":
		return "ok", m.close(c.comm)
	case "wait":
		return "ok", c.comm.Wait(ctx)
	case "async-error":
		return "ok", c.comm.AsyncError()
	case "state":
		return c.comm.State().String(), nil
	case "topology":
		return strings.Join(strings.Fields(strings.Join(c.comm.Topology().Transport, " ")), " "), nil
	default:
		m.t.Errorf("there is no command %q", c.verb)
		return "", nil
	}
}

// keep stores a communicator, if there is one.
func (m *member) keep(name string, comm *ccl.Comm, err error) (string, error) {
	m.comms[name] = comm
	switch {
	case err != nil:
		return "", err
	case comm == nil:
		return "none", nil
	}
	return fmt.Sprintf("rank %d of %d", comm.Rank(), comm.Size()), nil
}

// The call sites of a scenario: errors name these functions.

func (m *member) destroy(ctx context.Context, comm *ccl.Comm) error    { return comm.Destroy(ctx) }
func (m *member) destructor(ctx context.Context, comm *ccl.Comm) error { return comm.Destroy(ctx) }
func (m *member) finalize(ctx context.Context, comm *ccl.Comm) error   { return comm.Finalize(ctx) }
func (m *member) close(comm *ccl.Comm) error                           { return comm.Close() }
func (m *member) revoke(comm *ccl.Comm, why error) error               { return comm.Revoke(why) }
func (m *member) abort(comm *ccl.Comm, why error) error                { return comm.Abort(why) }

func (m *member) shrink(ctx context.Context, c call) (*ccl.Comm, error) {
	mode := ccl.ShrinkDefault
	if c.aborting {
		mode = ccl.ShrinkAbort
	}
	return c.comm.Shrink(ctx, c.exclude, mode, ccl.WithName(c.as))
}

// Texts that differ from run to run, and their replacements.
var masks = []struct {
	pattern *regexp.Regexp
	shown   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}`), "TIME"},
	{regexp.MustCompile(`(waited|expired after) [\d.]+m?s`), "$1 D"},
	{regexp.MustCompile(`\([\w.-]+:\d+\) arrived`), "(HOST:PID) arrived"},
	{regexp.MustCompile(`goroutine \d+`), "goroutine N"},
	{regexp.MustCompile(`(\w+\.go):\d+`), "$1"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`ccl_test\.\(\*member\)\.`), ""},
	{regexp.MustCompile(` on communicator "(\w+)" \(ID, rank -?\d+\)`), " on $1"}, // the line says which rank
	{regexp.MustCompile(`\n`), "; "},
}

func mask(s string) string {
	for _, m := range masks {
		s = m.pattern.ReplaceAllString(s, m.shown)
	}
	return s
}

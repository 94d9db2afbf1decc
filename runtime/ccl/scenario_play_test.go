package ccl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// patience is how long a command of a scenario may take; a scenario that hangs ends with it.
const patience = 20 * time.Second

// player is the job of a scenario.
type player struct {
	t       *testing.T
	members []*member
	ids     map[string]ccl.UniqueID // of the root communicators
}

// member is one rank of the job.
type member struct {
	rank, of int
	rt       *ccl.Runtime
	comms    map[string]*ccl.Comm
	works    map[string]*ccl.Work
	todo     chan func() // for the rank's goroutine
}

// command is a line of a scenario, taken apart.
type command struct {
	verb    string
	words   []string          // without an "="
	options map[string]string // with one
	inner   []command         // of a group
	id      ccl.UniqueID      // for init
}

func parse(line string) command {
	c := command{options: map[string]string{}}
	if head, body, group := strings.Cut(line, "{"); group {
		line = head
		for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(body), "}"), ";") {
			c.inner = append(c.inner, parse(part))
		}
	}
	for i, word := range strings.Fields(line) {
		name, value, option := strings.Cut(word, "=")
		switch {
		case i == 0:
			c.verb = word
		case option:
			c.options[name] = value
		default:
			c.words = append(c.words, word)
		}
	}
	return c
}

func (p *player) stop() {
	for _, m := range p.members {
		close(m.todo)
	}
}

// do makes all ranks do a line and returns their answers; an error is a mistake in the transcript.
func (p *player) do(line string) ([]string, error) {
	who := ""
	if strings.HasPrefix(line, "@") {
		who, line, _ = strings.Cut(line[1:], " ")
	}
	c := parse(line)
	if c.verb == "job" {
		return []string{"ok"}, p.begin(c)
	}
	if c.verb == "init" {
		if err := p.name(&c); err != nil {
			return nil, err
		}
	}
	answers, errs := make([]string, len(p.members)), make([]error, len(p.members))
	var wg sync.WaitGroup
	for r, m := range p.members {
		if who != "" && !slices.Contains(strings.Split(who, ","), strconv.Itoa(r)) {
			continue
		}
		wg.Add(1)
		do := func() {
			defer wg.Done()
			answers[r], errs[r] = m.do(c)
		}
		if c.options["goroutine"] == "other" {
			go do()
		} else {
			m.todo <- do
		}
	}
	wg.Wait()
	return merged(answers), errors.Join(errs...)
}

func (p *player) begin(c command) error {
	n, err := strconv.Atoi(c.options["ranks"])
	if err != nil {
		return err
	}
	nodes, _ := strconv.Atoi(c.options["nodes"])
	p.ids = map[string]ccl.UniqueID{}
	var shared *ccl.Runtime
	if nodes == 0 {
		shared = newRuntime(p.t, ccl.Config{})
	}
	for r := range n {
		m := &member{rank: r, of: n, rt: shared, comms: map[string]*ccl.Comm{}, works: map[string]*ccl.Work{}, todo: make(chan func())}
		if shared == nil {
			m.rt = newRuntime(p.t, ccl.Config{Fabric: fabric.Config{HostID: fmt.Sprintf("node %d", r*nodes/n), SocketIfname: "lo"}})
		}
		p.members = append(p.members, m)
		go func() {
			for do := range m.todo {
				do()
			}
		}()
	}
	return nil
}

// name makes the unique id of a root communicator, once.
func (p *player) name(c *command) (err error) {
	if len(c.words) == 0 || len(p.members) == 0 {
		return errors.New("init needs a name, and a job before it")
	}
	id, known := p.ids[c.words[0]]
	if !known {
		if id, err = p.members[0].rt.NewUniqueID(); err != nil {
			return err
		}
		p.ids[c.words[0]] = id
	}
	c.id = id
	return nil
}

// do makes one call, and returns what came of it.
func (m *member) do(c command) (string, error) {
	limit := patience
	if s := c.options["patience"]; s != "" {
		var err error
		if limit, err = time.ParseDuration(s); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	answer, err := m.call(ctx, c)
	switch {
	case errors.Is(err, errTranscript):
		return "", err
	case err == nil:
		return mask(answer), nil
	case errors.Is(err, ccl.ErrInProgress) && err.Error() == ccl.ErrInProgress.Error():
		return "in progress", nil
	default:
		return mask(err.Error()), nil
	}
}

// errTranscript is a mistake in the transcript.
var errTranscript = errors.New("the transcript is wrong")

func mistake(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errTranscript, fmt.Sprintf(format, args...))
}

func (m *member) call(ctx context.Context, c command) (string, error) {
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
	}
	if len(c.words) == 0 {
		return "", mistake("%s needs a name", c.verb)
	}
	name := c.words[0]
	if c.verb == "init" {
		opts := []ccl.Option{ccl.WithName(name)}
		if slices.Contains(c.words, "nonblocking") {
			opts = append(opts, ccl.NonBlocking())
		}
		comm, err := m.rt.InitRank(ctx, c.id, m.of, m.rank, opts...)
		if m.comms[name] = comm; err == nil && (comm.Rank() != m.rank || comm.Size() != m.of) {
			return comm.String(), nil
		}
		return "ok", err
	}
	if c.verb == "result" {
		return "ok", m.works[name].Wait(ctx)
	}
	comm, known := m.comms[name]
	if !known {
		return "", mistake("rank %d has no communicator %s", m.rank, name)
	}
	switch c.verb {
	case "split", "shrink":
		return m.child(ctx, comm, c)
	case "allreduce", "allgather", "barrier":
		return m.operate(ctx, comm, c)
	default:
		return m.live(ctx, comm, c)
	}
}

// keep remembers a communicator, if there is one.
func (m *member) keep(name string, comm *ccl.Comm, err error) (string, error) {
	m.comms[name] = comm // also nil, for a rank that got none
	switch {
	case err != nil:
		return "", err
	case comm == nil:
		return "none", nil
	}
	return fmt.Sprintf("rank %d of %d", comm.Rank(), comm.Size()), nil
}

func (m *member) child(ctx context.Context, comm *ccl.Comm, c command) (string, error) {
	as := c.options["as"]
	if c.verb == "split" {
		color, err := m.term(c.options["color"])
		if err != nil {
			return "", err
		}
		key, err := m.term(c.options["key"])
		if err != nil {
			return "", err
		}
		child, err := comm.Split(ctx, color, key, ccl.WithName(as))
		return m.keep(as, child, err)
	}
	var exclude []int
	for r := range strings.SplitSeq(c.options["exclude"], ",") {
		n, err := strconv.Atoi(r)
		if err != nil {
			return "", mistake("%v", err)
		}
		exclude = append(exclude, n)
	}
	mode := ccl.ShrinkDefault
	if slices.Contains(c.words, "abort") {
		mode = ccl.ShrinkAbort
	}
	child, err := comm.Shrink(ctx, exclude, mode, ccl.WithName(as))
	return m.keep(as, child, err)
}

// term is a number that may depend on the rank.
func (m *member) term(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	if s == "none" {
		return ccl.NoColor, nil
	}
	if s == "-rank" {
		return -m.rank, nil
	}
	if op, ok := strings.CutPrefix(s, "rank"); ok && op != "" {
		n, err := strconv.Atoi(op[1:])
		switch {
		case err == nil && n > 0 && op[0] == '%':
			return m.rank % n, nil
		case err == nil && n > 0 && op[0] == '/':
			return m.rank / n, nil
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, mistake("%q is no term", s)
	}
	return n, nil
}

// operate makes an operation. Its result says who took part: the sum of 10 to the rank in the job, or the list of those
// ranks.
func (m *member) operate(ctx context.Context, comm *ccl.Comm, c command) (string, error) {
	one := []int64{1}
	for range m.rank {
		one[0] *= 10
	}
	switch sum := make([]int64, 1); c.verb {
	case "barrier":
		return "ok", ccl.Barrier(ctx, comm)
	case "allreduce":
		if as := c.options["as"]; as != "" {
			m.works[as] = ccl.IAllReduce(context.WithoutCancel(ctx), comm, one, sum, ccl.Sum)
			return "started", nil
		}
		err := ccl.AllReduce(ctx, comm, one, sum, ccl.Sum)
		return fmt.Sprintf("sum %d", sum[0]), err
	default:
		all := make([]int64, max(comm.Size(), 1))
		err := ccl.AllGather(ctx, comm, []int64{int64(m.rank)}, all)
		return fmt.Sprintf("of %v", all), err
	}
}

// live makes a call about a communicator's life, or looks at it.
func (m *member) live(ctx context.Context, comm *ccl.Comm, c command) (string, error) {
	switch c.verb {
	case "destroy":
		if c.options["at"] == "destructor" {
			return "ok", m.destructor(ctx, comm)
		}
		return "ok", m.destroy(ctx, comm)
	case "finalize":
		return "ok", m.finalize(ctx, comm)
	case "abort":
		return "ok", m.abort(comm, strings.Join(c.words[1:], " "))
	case "revoke":
		return "ok", m.revoke(comm, strings.Join(c.words[1:], " "))
	case "close":
		return "ok", m.close(comm)
	case "wait":
		return "ok", comm.Wait(ctx)
	case "async-error":
		return "ok", comm.AsyncError()
	case "state":
		return comm.State().String(), nil
	case "topology":
		return strings.Join(strings.Fields(strings.Join(comm.Topology().Transport, " ")), " "), nil
	default:
		return "", mistake("there is no command %q", c.verb)
	}
}

// Where a scenario's calls are made: errors name these functions.

func (m *member) destroy(ctx context.Context, comm *ccl.Comm) error    { return comm.Destroy(ctx) }
func (m *member) destructor(ctx context.Context, comm *ccl.Comm) error { return comm.Destroy(ctx) }

func (m *member) finalize(ctx context.Context, comm *ccl.Comm) error { return comm.Finalize(ctx) }

func (m *member) close(comm *ccl.Comm) error              { return comm.Close() }
func (m *member) revoke(comm *ccl.Comm, why string) error { return comm.Revoke(reason(why)) }

func (m *member) abort(comm *ccl.Comm, why string) error { return comm.Abort(reason(why)) }

func reason(why string) error {
	if why == "" {
		return nil
	}
	return errors.New(why)
}

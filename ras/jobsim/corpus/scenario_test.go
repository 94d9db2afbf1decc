package corpus

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/agent"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestScenarios plays the scenarios in testdata (datadriven: go test . -rewrite writes their answers anew). A scenario
// says what the ranks of a job did, and asks for the verdicts on it at three doors: the judge, which has notes of all
// processes; the agents of the job, in virtual time; and the post-mortem of the tapes, as if all processes were killed
// now. The three must say the same, except where the scenario says why they can't.
//
//	job ranks=N [hosts=N] [per-process=N] [on-error=exit|close|stay|go-on] [blind] [latency=D]
//	    begins: the communicator "world" is there, ready on all ranks, unless the input says "no world"
//	comm name=NAME ranks=LIST [parent=NAME]
//	    a communicator of these ranks of the job
//	run [until=TIME] [repeat=N every=D]
//	    the input has lines: TIME RANKS DO…; each rank does its lines in turn, none before its TIME:
//	      CALL COMM [bytes=N] [type=T] [op=R] [peer=N] [from=N|none] [timeout=D] [behind=D] [async|launched]
//	      [times=N] [every=D]
//	      init | split COMM NAME color=N | shrink COMM NAME without=LIST | destroy COMM | abort COMM CAUSE…
//	      wait | sleep D | hang
//	      leave [CODE] | exit CODE    (leave closes the runtime before it exits)
//	      give-up    (at that time, the contexts of the calls that it is in are canceled)
//	      stop | continue | kill | term    (of the ranks' processes, at that time, whatever they do)
//	    or TIME freeze|thaw|cut|join HOST, or TIME cancel: the launcher is told to end the job
//	diagnose [at=TIME] [differ]
//	    lets the time go on until then, and prints the verdicts; if the doors may differ, what each of them says
//	after
//	    prints how the job ended, and what was wrong, as its tapes say after its end
//	told
//	    prints what receivers outside of the job were told since the last time
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			switch d.Cmd {
			case "job":
				return s.job(d)
			case "comm":
				return s.comm(d)
			case "run":
				return s.run(d)
			case "diagnose":
				return s.diagnose(d)
			case "told":
				return s.toldSince()
			case "after":
				return s.after(d)
			default:
				d.Fatalf(t, "%s: there is no command %q", filepath.Base(path), d.Cmd)
				return ""
			}
		})
	})
}

type scenario struct {
	t       *testing.T
	job_    *jobsim.Job
	live    *Live
	began   int64
	queues  map[int][]step // by rank
	told    []string
	threads map[int]bool
}

// step is something that a rank does, not before a time.
type step struct {
	at int64
	do jobsim.Instruction
}

func (s *scenario) job(d *datadriven.TestData) string {
	var c jobsim.Config
	ranks, each := 0, 1
	onError := "stay"
	d.ScanArgs(s.t, "ranks", &ranks)
	d.MaybeScanArgs(s.t, "per-process", &each)
	d.MaybeScanArgs(s.t, "hosts", &c.Hosts)
	d.MaybeScanArgs(s.t, "on-error", &onError)
	c.Blind = d.HasArg("blind")
	c.Processes = ranks / each
	c.OnError = map[string]jobsim.Reaction{
		"exit": jobsim.Exit, "close": jobsim.Close, "stay": jobsim.Stay, "go-on": jobsim.GoOn,
	}[onError]
	s.job_ = jobsim.New(c, each)
	s.began = s.job_.Now()
	s.live = NewLive(s.job_)
	s.queues, s.threads, s.told = map[int][]step{}, map[int]bool{}, nil
	s.live.Told = func(at int64, t *agent.Tell) {
		s.told = append(s.told, fmt.Sprintf("%v %s %s", time.Duration(at-s.began).Round(10*time.Millisecond),
			t.Change.Kind, masked(&t.Change.Verdict)))
	}
	if strings.TrimSpace(d.Input) != "no world" {
		s.job_.Comm("world", "", s.list(d, fmt.Sprintf("0-%d", ranks-1)))
	}
	return ""
}

func (s *scenario) comm(d *datadriven.TestData) string {
	var name, parent, ranks string
	d.ScanArgs(s.t, "name", &name)
	d.ScanArgs(s.t, "ranks", &ranks)
	d.MaybeScanArgs(s.t, "parent", &parent)
	s.job_.Comm(name, parent, s.list(d, ranks))
	return ""
}

// list reads "0-3,5".
func (s *scenario) list(d *datadriven.TestData, text string) (ranks []int) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, found := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if found && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil {
			d.Fatalf(s.t, "%q is no list of ranks", text)
		}
		for r := a; r <= b; r++ {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func (s *scenario) duration(d *datadriven.TestData, text string) time.Duration {
	v, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	return v
}

func (s *scenario) run(d *datadriven.TestData) string {
	repeat, every := 1, "0s"
	d.MaybeScanArgs(s.t, "repeat", &repeat)
	d.MaybeScanArgs(s.t, "every", &every)
	for i := range repeat {
		s.lines(d, time.Duration(i)*s.duration(d, every))
	}
	return s.until(d, "until")
}

// lines does what the input says, shifted by later.
func (s *scenario) lines(d *datadriven.TestData, later time.Duration) {
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		at := later + s.duration(d, words[0])
		switch words[1] {
		case "cancel":
			s.later(at, s.live.Ending)
			continue
		case "freeze", "thaw":
			for _, p := range s.job_.Processes {
				if p.Host == words[2] {
					s.later(at, map[string]func(){"freeze": p.Stop, "thaw": p.Continue}[words[1]])
				}
			}
			continue
		case "cut", "join":
			s.later(at, func() { s.live.Cut(words[2], words[1] == "cut") })
			continue
		}
		for _, r := range s.list(d, words[1]) {
			p := s.job_.Ranks[r].Process
			switch words[2] {
			case "stop":
				s.later(at, p.Stop)
			case "continue":
				s.later(at, p.Continue)
			case "give-up":
				s.later(at, s.job_.Ranks[r].GiveUp)
			case "kill":
				s.later(at, func() { p.Kill(process.Exit{Known: true, Signal: unix.SIGKILL}) })
			case "term":
				s.later(at, func() { s.live.Terminate(p) })
			default:
				s.enqueue(d, r, at, words[2:])
			}
		}
	}
}

func (s *scenario) later(at time.Duration, f func()) {
	s.job_.After(time.Duration(s.began+int64(at)-s.job_.Now()), f)
}

func (s *scenario) until(d *datadriven.TestData, arg string) string {
	var at string
	if d.MaybeScanArgs(s.t, arg, &at) {
		s.job_.Run(s.began + int64(s.duration(d, at)))
	}
	return ""
}

// enqueue gives a rank something to do.
func (s *scenario) enqueue(d *datadriven.TestData, rank int, at time.Duration, words []string) {
	times, every := 1, time.Duration(0)
	args := map[string]string{}
	for _, w := range words[1:] {
		if key, value, found := strings.Cut(w, "="); found {
			args[key] = value
		}
	}
	if v, ok := args["times"]; ok {
		times, _ = strconv.Atoi(v)
	}
	if v, ok := args["every"]; ok {
		every = s.duration(d, v)
	}
	for i := range times {
		s.queues[rank] = append(s.queues[rank], step{
			s.began + int64(at) + int64(i)*int64(every),
			s.instruction(d, words, args),
		})
	}
	if s.threads[rank] {
		return
	}
	s.threads[rank] = true
	s.job_.Ranks[rank].Run(func() jobsim.Instruction {
		if len(s.queues[rank]) == 0 {
			return jobsim.Compute{For: 10 * time.Millisecond}
		}
		next := s.queues[rank][0]
		if now := s.job_.Now(); next.at > now {
			return jobsim.Compute{For: time.Duration(next.at - now)}
		}
		s.queues[rank] = s.queues[rank][1:]
		return next.do
	})
}

func (s *scenario) instruction(d *datadriven.TestData, words []string, args map[string]string) jobsim.Instruction {
	number := func(key string, or int) int {
		if v, ok := args[key]; ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				d.Fatalf(s.t, "%s=%q is no number", key, v)
			}
			return n
		}
		return or
	}
	switch words[0] {
	case "init":
		return jobsim.Init{}
	case "split":
		return jobsim.Split{Comm: words[1], Name: words[2], Color: number("color", 0)}
	case "shrink":
		return jobsim.Shrink{Comm: words[1], Name: words[2], Without: s.list(d, args["without"])}
	case "destroy":
		return jobsim.Destroy{Comm: words[1]}
	case "abort":
		return jobsim.Abort{Comm: words[1], Cause: strings.Join(words[2:], " ")}
	case "wait":
		return jobsim.Wait{}
	case "sleep":
		return jobsim.Compute{For: s.duration(d, words[1])}
	case "hang":
		return jobsim.Hang{}
	case "leave", "exit":
		code, err := 0, error(nil)
		if len(words) > 1 {
			code, err = strconv.Atoi(words[1])
		}
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		if words[0] == "leave" {
			return jobsim.Leave{Code: code}
		}
		return jobsim.Die{Code: code}
	}
	call := slices.IndexFunc(lifecycle.Calls(), func(c lifecycle.Call) bool { return c.String() == words[0] })
	if call < 0 || len(words) < 2 {
		d.Fatalf(s.t, "there is no call %q", words[0])
	}
	sig := tape.Signature{
		Call: lifecycle.Calls()[call], DataType: uint8(kernels.Float32), Peer: int32(number("peer", -1)),
		Bytes: uint64(number("bytes", 4096)),
	}
	if name, ok := args["type"]; ok {
		sig.DataType = numberOf[kernels.DataType](d, s.t, name)
	}
	if name, ok := args["op"]; ok {
		sig.Reduction = numberOf[kernels.Reduction](d, s.t, name)
	}
	if sig.Call == lifecycle.CallSendRecv || sig.Call == lifecycle.CallGroupEnd {
		send, receive := sig, sig
		send.Call, receive.Call = lifecycle.CallSend, lifecycle.CallRecv
		sigs := []tape.Signature{send, receive}
		if args["from"] == "none" {
			sigs = sigs[:1]
		} else {
			sigs[1].Peer = int32(number("from", int(sig.Peer)))
		}
		return jobsim.Group{Comm: words[1], Sigs: sigs, Call: sig.Call}
	}
	c := jobsim.Call{Comm: words[1], Sig: sig, Async: slices.Contains(words, "async")}
	c.Launched = slices.Contains(words, "launched")
	if v, ok := args["timeout"]; ok {
		c.Timeout = s.duration(d, v)
	}
	if v, ok := args["behind"]; ok {
		c.Behind = s.duration(d, v)
	}
	return c
}

// diagnose asks at all three doors.
func (s *scenario) diagnose(d *datadriven.TestData) string {
	s.until(d, "at")
	judge, _ := verdict.Diagnose(s.live.notes())
	r, err := s.live.readNow(s.t.TempDir())
	if err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	dead := make([]verdict.Verdict, len(r.Findings))
	for i := range dead {
		dead[i] = r.Findings[i].Verdict
	}
	doors := []struct{ name, says string }{
		{"notes", listed(judge)},
		{"agents", listed(s.live.open())},
		{"tapes", listed(dead)},
	}
	if doors[0].says == doors[1].says && doors[0].says == doors[2].says {
		return doors[0].says
	}
	var out strings.Builder
	for _, door := range doors {
		fmt.Fprintf(&out, "[%s]\n%s", door.name, door.says)
	}
	if !d.HasArg("differ") {
		s.t.Errorf("%s: the doors differ:\n%s", d.Pos, out.String())
	}
	return out.String()
}

func (s *scenario) after(d *datadriven.TestData) string {
	r, err := s.live.Read(s.t.TempDir())
	if err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", r.Ended.How, r.Ended.Text)
	for i := range r.Findings {
		out.WriteString(listed([]verdict.Verdict{r.Findings[i].Verdict}))
	}
	for i := range r.Held {
		out.WriteString("held up: " + listed([]verdict.Verdict{r.Held[i].Verdict}))
	}
	return out.String()
}

func (s *scenario) toldSince() string {
	told := s.told
	s.told = nil
	if len(told) == 0 {
		return "nothing\n"
	}
	return strings.Join(told, "\n") + "\n"
}

func listed(verdicts []verdict.Verdict) string {
	if len(verdicts) == 0 {
		return "no verdict\n"
	}
	var out strings.Builder
	for i := range verdicts {
		v := &verdicts[i]
		fmt.Fprintf(&out, "%s\n", masked(v))
		for _, e := range v.Evidence {
			fmt.Fprintf(&out, "  - %s\n", e.Ageless())
		}
	}
	return out.String()
}

// masked is a verdict in a line, with … for ages.
func masked(v *verdict.Verdict) string {
	ranks := make([]string, 0, len(v.Culprits))
	for _, c := range v.Culprits {
		ranks = append(ranks, strconv.Itoa(c.Job))
	}
	return fmt.Sprintf("%s (%s) [%s] %s", v.Reason, v.Confidence, strings.Join(ranks, " "), v.Text.Ageless())
}

// numberOf is the data type or reduction that has a name.
func numberOf[T interface {
	~uint8
	String() string
	Valid() bool
}](d *datadriven.TestData, t *testing.T, name string) uint8 {
	for v := T(0); v.Valid(); v++ {
		if v.String() == name {
			return uint8(v)
		}
	}
	d.Fatalf(t, "there is no %T %q", T(0), name)
	return 0
}

// notes are the notes of all processes as of now, with their fates.
func (l *Live) notes() []verdict.Note {
	fates := [...]verdict.Fate{
		jobsim.Running: verdict.Alive, jobsim.Stopped: verdict.Stopped, jobsim.Dead: verdict.Dead,
		jobsim.Departed: verdict.Departed,
	}
	notes := make([]verdict.Note, 0, len(l.peers))
	for _, q := range l.peers {
		n, s := q.note(), q.status()
		if n.Fate = fates[q.process.State]; n.Fate != verdict.Alive {
			n.FateAge, n.Cause = time.Duration(l.job.Now()-q.process.Since), agent.CauseText(&s)
			n.Told, n.Killed, n.Failed = s.Exit.Told(), s.Exit.Killed(), s.Exit.Code != 0
		}
		if n.LeftFailing() {
			n.Fate = verdict.Dead
		}
		notes = append(notes, n)
	}
	return notes
}

// open are the verdicts that are open, as the process that coordinates has them.
func (l *Live) open() []verdict.Verdict {
	for _, q := range l.peers {
		if q.runs() && q.machine.Leader() == q.member.Name {
			return q.machine.Open()
		}
	}
	return nil
}

// readNow writes the tapes as of this moment, and reads them.
func (l *Live) readNow(dir string) (*postmortem.Report, error) {
	for _, q := range l.peers {
		if q.process.State == jobsim.Running {
			q.beat()
		}
	}
	if err := l.write(dir); err != nil {
		return nil, err
	}
	return postmortem.Read([]string{dir}, postmortem.Options{At: l.now()})
}

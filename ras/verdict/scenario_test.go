package verdict_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

var rewrite = flag.Bool("rewrite", false, "write the scenarios in testdata as they are now")

// TestScenarios plays the transcripts in testdata: a command a line, its recorded output indented below it. A rank is a
// process of its own; RANKS is a list such as 0-2,5. The commands:
//
//	job N [hosts=H]                          begins: N ranks on H hosts, all at rest
//	comm NAME RANKS [parent=NAME]            a communicator of these ranks of the job
//	in RANKS COMM SEQ CALL AGE [stalled] [wait=R:AGE] [bytes=N] [type=T] [reduction=R] [peer=P]
//	                                         the ranks are in an operation; wait and peer are ranks of the communicator
//	did RANKS COMM SEQ CALL AGE              it was their last, and ended so long ago
//	act RANKS COMM ACT AGE [stalled] [phase=PHASE]
//	                                         an act that has begun and not ended
//	gone RANKS COMM                          they are not in the communicator, or not any more
//	closed RANKS COMM                        they have ended it in order
//	dead|stopped|unreachable RANKS AGE [CAUSE …]
//	silent RANKS                             there is no note of them; of one that is dead, no slots
//	unmissed RANKS                           those who ask have found that nobody misses them, and leave them out, and
//	                                         communicators that failed
//	outside RANKS WHAT …                     what they do outside of Carillon
//	failed RANKS COMM SEQ CALL CODE peer=R TEXT …
//	waited RANKS COMM R TIME OPS of WINDOW   how long their operations waited for rank R of the communicator
//	diagnose                                 prints the verdicts
//	track                                    prints what changed since the last time, two seconds ago
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(script))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(script) {
				t.Errorf("%s differs (go test -rewrite accepts it):\n%s", file, got)
			}
		})
	}
}

const indent = "    "

func play(t *testing.T, script string) string {
	s := &scenario{comms: map[string]*comm{}}
	var out strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, indent) {
			continue
		}
		out.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		answer, err := s.do(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for a := range strings.Lines(answer) {
			out.WriteString(indent + a)
		}
	}
	return out.String()
}

// sinceTrack is between two tracks.
const sinceTrack = 2 * time.Second

type comm struct {
	id, parent lifecycle.CommID
	name       string
	ranks      []int
}

type scenario struct {
	notes    []verdict.Note
	silent   map[int]bool
	unmissed map[int]bool
	comms    map[string]*comm
	made     byte // communicators, so far
	tracker  verdict.Tracker
}

func (s *scenario) do(line string) (string, error) {
	words := strings.Fields(line)
	args := words[1:]
	switch words[0] {
	case "job":
		return "", s.job(args)
	case "comm":
		return "", s.comm(args)
	case "diagnose":
		return report(verdict.Diagnose(s.missed())), nil
	case "track":
		var out strings.Builder
		for _, c := range s.tracker.Update(verdict.Diagnose(s.missed())) {
			kind := c.Kind.String()
			if c.Kind == verdict.Withdrawn && !c.Verdict.Healed(s.speaking(), sinceTrack) {
				kind += " unresolved"
			}
			fmt.Fprintln(&out, kind, c.Verdict.String())
		}
		if out.Len() == 0 {
			return "nothing changed\n", nil
		}
		return out.String(), nil
	}
	ranks, err := parseRanks(args[0])
	if err != nil {
		return "", err
	}
	for _, r := range ranks {
		if err := s.rank(words[0], r, args[1:]); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (s *scenario) job(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	hosts := 1
	for _, a := range args[1:] {
		if _, err := fmt.Sscanf(a, "hosts=%d", &hosts); err != nil {
			return err
		}
	}
	s.tracker = verdict.Tracker{}
	s.notes, s.silent, s.unmissed = make([]verdict.Note, n), map[int]bool{}, map[int]bool{}
	for r := range s.notes {
		host := fmt.Sprintf("node%d", r*hosts/n)
		s.notes[r] = verdict.Note{Member: fmt.Sprintf("%s-%d", host, 1000+r), Host: host, PID: 1000 + r, Rank: r, JobSize: n}
	}
	return nil
}

func (s *scenario) comm(args []string) error {
	ranks, err := parseRanks(args[1])
	if err != nil {
		return err
	}
	s.made++
	c := &comm{id: lifecycle.CommID{s.made}, name: args[0], ranks: ranks}
	for _, a := range args[2:] {
		parent, ok := strings.CutPrefix(a, "parent=")
		if !ok || s.comms[parent] == nil {
			return fmt.Errorf("what is %q?", a)
		}
		c.parent = s.comms[parent].id
	}
	s.comms[c.name] = c
	for i, r := range ranks {
		s.notes[r].Slots = append(s.notes[r].Slots, verdict.Slot{
			Comm: c.id, Parent: c.parent, Name: c.name, Rank: i, Size: len(ranks), Root: 1, State: lifecycle.StateReady, Wait: -1,
		})
	}
	return nil
}

// slot is a rank's in a communicator.
func (s *scenario) slot(rank int, name string) (*verdict.Slot, error) {
	for i := range s.notes[rank].Slots {
		if slot := &s.notes[rank].Slots[i]; slot.Name == name {
			return slot, nil
		}
	}
	return nil, fmt.Errorf("rank %d is not in %s", rank, name)
}

func (s *scenario) rank(word string, rank int, args []string) (err error) {
	n := &s.notes[rank]
	switch word {
	case "alive", "dead", "stopped", "unreachable":
		if err := n.Fate.UnmarshalText([]byte(word)); err != nil {
			return err
		}
		if len(args) > 0 {
			n.FateAge, err = time.ParseDuration(args[0])
			n.Cause = strings.Join(args[1:], " ")
		}
		return err
	case "silent":
		s.silent[rank] = true
		return nil
	case "unmissed":
		s.unmissed[rank] = true
		return nil
	case "outside":
		n.Where = strings.Join(args, " ")
		return nil
	}
	slot, err := s.slot(rank, args[0])
	if err != nil {
		return err
	}
	args = args[1:]
	switch word {
	case "in", "did":
		return operation(slot, word == "in", args)
	case "act":
		return act(slot, args)
	case "closed":
		n.Closed = append(n.Closed, slot.Comm)
		fallthrough
	case "gone":
		n.Slots = slices.DeleteFunc(n.Slots, func(o verdict.Slot) bool { return o.Name == slot.Name })
		return nil
	case "failed":
		f := verdict.Failure{Age: time.Second}
		var call string
		var code string
		if _, err := fmt.Sscanf(strings.Join(args[:4], " "), "%d %s %s peer=%d", &f.Seq, &call, &code, &f.Peer); err != nil {
			return err
		}
		if f.Call, err = parseCall(call); err != nil {
			return err
		}
		for _, c := range lifecycle.Codes() {
			if c.String() == code {
				f.Code = c
			}
		}
		f.Text = strings.Join(args[4:], " ")
		slot.Failure, slot.State = &f, lifecycle.StateFailed
		return nil
	case "waited":
		w := verdict.Waited{}
		if w.Rank, err = strconv.Atoi(args[0]); err != nil {
			return err
		}
		w.Time, err = time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		if w.Ops, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
		slot.Window, err = time.ParseDuration(args[4])
		slot.Waited = append(slot.Waited, w)
		return err
	}
	return fmt.Errorf("unknown command %q", word)
}

func parseCall(name string) (lifecycle.Call, error) {
	for c := range lifecycle.Call(64) {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("%q is no call", name)
}

func operation(slot *verdict.Slot, inFlight bool, args []string) (err error) {
	if slot.Seq, err = strconv.ParseUint(args[0], 10, 64); err != nil {
		return err
	}
	slot.Op = tape.Signature{Peer: -1}
	if slot.Op.Call, err = parseCall(args[1]); err != nil {
		return err
	}
	if slot.Op.Call == lifecycle.CallAllReduce {
		slot.Op.DataType, slot.Op.Bytes = uint8(kernels.Float32), 4096
	}
	if slot.Age, err = time.ParseDuration(args[2]); err != nil {
		return err
	}
	slot.InFlight, slot.Wait, slot.WaitAge, slot.Stalled = 0, -1, 0, false
	if inFlight {
		slot.InFlight = 1
	}
	for _, a := range args[3:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "stalled":
			slot.Stalled = true
		case "wait":
			rank, age, _ := strings.Cut(value, ":")
			if slot.Wait, err = strconv.Atoi(rank); err == nil {
				slot.WaitAge, err = time.ParseDuration(age)
			}
		case "bytes":
			slot.Op.Bytes, err = strconv.ParseUint(value, 10, 64)
		case "type":
			var t kernels.DataType
			t, err = kernels.ParseDataType(value)
			slot.Op.DataType = uint8(t)
		case "reduction":
			var r kernels.Reduction
			r, err = kernels.ParseReduction(value)
			slot.Op.Reduction = uint8(r)
		case "peer":
			var p int
			p, err = strconv.Atoi(value)
			slot.Op.Peer = int32(p)
		default:
			err = fmt.Errorf("what is %q?", a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func act(slot *verdict.Slot, args []string) (err error) {
	o := verdict.OpenAct{}
	for a := range tape.Act(32) {
		if a.String() == args[0] {
			o.Act = a
		}
	}
	if o.Age, err = time.ParseDuration(args[1]); err != nil {
		return err
	}
	for _, a := range args[2:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "stalled":
			o.Stalled = true
		case "phase":
			for p := range tape.Phase(16) {
				if p.String() == value {
					o.Phase = p
				}
			}
		}
	}
	if o.Act == tape.ActInit {
		slot.State, slot.Parent = lifecycle.StateInitializing, lifecycle.CommID{}
	}
	slot.Acts = append(slot.Acts, o)
	return nil
}

// speaking are the notes that the asker has.
func (s *scenario) speaking() []verdict.Note {
	var notes []verdict.Note
	for r, n := range s.notes {
		if s.silent[r] {
			if n.Fate == verdict.Alive {
				continue
			}
			n.Slots = nil
		}
		notes = append(notes, n)
	}
	return notes
}

// missed are those of whom the verdicts are.
func (s *scenario) missed() []verdict.Note {
	notes := slices.DeleteFunc(s.speaking(), func(n verdict.Note) bool { return s.unmissed[n.Rank] })
	for i := range notes {
		if len(s.unmissed) > 0 {
			notes[i].Slots = slices.DeleteFunc(slices.Clone(notes[i].Slots), func(slot verdict.Slot) bool { return slot.Failure != nil })
		}
	}
	return notes
}

func report(verdicts []verdict.Verdict) string {
	if len(verdicts) == 0 {
		return "no verdict\n"
	}
	var out strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&out, "%s (%s, %s): %s\n", v.Reason, v.Confidence, culprits(v.Culprits), v.Text)
		for _, e := range v.Evidence {
			fmt.Fprintf(&out, "  - %s\n", e)
		}
	}
	return out.String()
}

func culprits(ranks []verdict.Rank) string {
	if len(ranks) == 0 {
		return "nobody"
	}
	var all []string
	for _, r := range ranks {
		all = append(all, cmp.Or(strings.TrimPrefix(r.String(), "rank "), "?"))
	}
	return "rank " + strings.Join(all, ",")
}

// parseRanks reads a list such as 0-2,5.
func parseRanks(text string) ([]int, error) {
	var ranks []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		a, err := strconv.Atoi(from)
		if err != nil {
			return nil, err
		}
		b, err := strconv.Atoi(to)
		if err != nil {
			return nil, err
		}
		for r := a; r <= b; r++ {
			ranks = append(ranks, r)
		}
	}
	return ranks, nil
}

package postmortem_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// stage is where a script plays: machines with clocks, processes on them, and a folder that gets their tapes. The
// script's language, a line a step; TIME is since noon, COMM, PROC and HOST are names that the script chooses:
//
//	host HOST [clock DUR] [wall DUR]              a machine: what its monotonic clock is ahead of the script's, and
//	                                              its time of day. Only of processes on the one named here is it known
//	                                              that they are dead
//	process PROC HOST [closed] [made DUR] [seen DUR] [paused DUR DUR] [starved DUR] [told DUR] [exported DUR]
//	        [delivered DUR] [job JOB] [rank RANK/SIZE] [run N] [format N] [cut BYTES]
//	        [damage header|slots|tally|count] [twice]
//	        [container HOST PID AGENTPID]         its container's host name, its pid there, and the one that the agent
//	                                              has for it, which notes what is noted of it
//	TIME PROC comm COMM RANK/SIZE [PARENT]        the process gets its part of a communicator
//	TIME PROC nccl COMM RANK/SIZE                 the same of one of NCCL's, which has no name on its tape
//	TIME PROC act COMM ACT SEQ start | phase PHASE | ok | CODE PEER TEXT…
//	TIME PROC op COMM CALL SEQ BYTES ROOT start | phase PHASE | wait RANK | device DUR | ok | CODE
//	TIME PROC failed COMM CALL SEQ CODE PEER TEXT…
//	TIME PROC refused[:TIMES] COMM ACT CODE TEXT…
//	TIME PROC exits CODE | SIGNAL | ? [found | followed]
//	                                              its launcher sees that, and notes it in the ledger; or an agent
//	                                              does, which found it dead, or followed its tape to the end
//	ledger TIME HOST began | failed | output | SIGNAL | forwarded SIGNAL | RANK PID CODE [BEGAN] |
//	        program BEGAN PID CODE
//	                                              its launcher begins to start the ranks, ends the job for a rank that
//	                                              failed, or as nobody reads its output, gets a signal, passes one on,
//	                                              or sees the end of a process without a tape; or carillon attach sees
//	                                              that of its program, which began at a TIME
//	ledger TIME HOST running PROC[(stopped)]…     an agent notes, while a verdict is open, that these run, or are
//	                                              stopped
//	ledger TIME HOST stays PROC [PERCENT]         and for how much of the time the device of PROC was in collectives
//	                                              of its first communicator; without, that nobody is a straggler
//	tally PROC COMM CALL BYTES COUNT MEAN [ENGINE]
//	                                              what the process has counted; several of one kind are added up
//	TIME together COMM CALL SEQ BYTES DUR         all ranks of the communicator make an operation that takes so long
//	TIME together COMM act ACT SEQ DUR
//	file PATH TEXT…                               some other file
//	link PATH TARGET
type stage struct {
	t     testing.TB
	dir   string
	hosts map[string]*machine
	procs []*player
}

type machine struct {
	name        string
	clock, wall time.Duration
}

type player struct {
	tapetest.Forge
	name   string
	on     *machine
	cut    int
	damage string
	twice  bool
	comms  map[string]uint32        // number by name
	untold map[uint32]tape.OpRecord // by number: the start of what is in flight, if the ring hasn't it
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// here is the name of the machine that the test runs on, as far as tapes tell.
const here = "here"

func newStage(t testing.TB) *stage {
	t.Chdir(t.TempDir())
	return &stage{t: t, dir: "tapes", hosts: make(map[string]*machine)}
}

// play plays a script.
func (s *stage) play(script string) {
	s.t.Helper()
	for n, line := range strings.Split(script, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if err := s.step(words); err != nil {
			s.t.Fatalf("line %d: %s: %v", n+1, line, err)
		}
	}
}

func (s *stage) step(w []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	switch w[0] {
	case "host":
		m := &machine{name: w[1], clock: 1000 * time.Second}
		for i := 2; i < len(w); i += 2 {
			switch w[i] {
			case "clock":
				m.clock = duration(w[i+1])
			case "wall":
				m.wall = duration(w[i+1])
			}
		}
		s.hosts[w[1]] = m
	case "process":
		s.process(w)
	case "ledger":
		return s.ledger(duration(w[1]), s.hosts[w[2]], w[3:])
	case "tally":
		s.tally(s.find(w[1]), w[2:])
	case "file":
		return s.file(w[1], strings.Join(w[2:], " "))
	case "link":
		return os.Symlink(w[2], filepath.Join(s.dir, w[1]))
	default:
		at := duration(w[0])
		if w[1] == "together" {
			s.together(at, w[2:])
			return nil
		}
		s.moment(at, s.find(w[1]), w[2:])
	}
	return nil
}

func (s *stage) file(name, text string) error {
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func (s *stage) ledger(at time.Duration, on *machine, w []string) error {
	boot := process.BootID(kernelBoot(s.t, on.name))
	e := process.Entry{Time: noon.Add(at), Mono: int64(at + on.clock), Boot: boot.String()}
	var pid int
	switch {
	case w[0] == "failed":
		e.Ended = process.EndedByFailure
	case w[0] == "output":
		e.Ended = process.EndedByOutput
	case w[0] == "running":
		e.Rank = -1
		for _, name := range w[1:] {
			name, stopped := strings.CutSuffix(name, "(stopped)")
			pid, e.PIDSpace = s.find(name).numbered()
			if e.Running = append(e.Running, pid); stopped {
				e.Stopped = append(e.Stopped, pid)
			}
		}
	case w[0] == "stays":
		p := s.find(w[1])
		e.Stays = []byte("{}")
		e.PID, e.PIDSpace = p.numbered()
		if len(w) > 2 {
			span := func(seconds int) model.Span {
				over, percent := int64(seconds)*int64(time.Second), int(natural(w[2]))
				in := over * int64(percent) / 100
				return model.Span{
					Looks: 4 * seconds, Over: over, Inside: in, Busy: in,
					Ops: seconds * percent / 10, Done: 10 * seconds,
				}
			}
			stays := map[uint32]model.Stay{p.Slots[0].Generation: {Span: span(20), Newer: span(10)}}
			var err error
			if e.Stays, err = json.Marshal(stays); err != nil {
				return err
			}
		}
	case w[0] == "program":
		e.Rank, e.Program, e.Began = -1, true, int64(duration(w[1])+on.clock)
		e.PID, e.Exit = int(natural(w[2])), process.Exit{Known: true, Code: int(natural(w[3]))}
	case w[0] == "began":
		e.Rank, e.Began = -1, e.Mono
	case w[0] == "forwarded":
		e.Rank, e.Forwarded = -1, w[1]
	case strings.HasPrefix(w[0], "SIG"):
		e.Ended = w[0]
	default:
		e.Rank, e.PID = int(natural(w[0])), int(natural(w[1]))
		e.Exit = process.Exit{Known: true, Code: int(natural(w[2]))}
		if len(w) > 3 {
			e.Began = int64(duration(w[3]) + on.clock)
		}
	}
	dir := filepath.Join(s.dir, "train")
	return errors.Join(os.MkdirAll(dir, 0o700), process.AppendEntry(dir, e))
}

func (s *stage) process(w []string) {
	on := s.hosts[w[2]]
	p := &player{name: w[1], on: on, comms: make(map[string]uint32), untold: make(map[uint32]tape.OpRecord)}
	p.PID, p.Host, p.BootID, p.Job, p.Program = 999_999_000+len(s.procs), on.name, "boot of "+on.name, "train", "digits"
	p.KernelBoot = kernelBoot(s.t, on.name)
	p.CreatedMono, p.CreatedWall = int64(on.clock), noon.Add(on.wall).UnixNano()
	for i := 3; i < len(w); i++ {
		switch w[i] {
		case "closed":
			p.Closed = true
		case "twice":
			p.twice = true
		case "container":
			p.Host, p.PID, p.AgentPID = w[i+1], int(natural(w[i+2])), int(natural(w[i+3]))
			p.PIDSpace = agentSpace + 1 + uint64(len(s.procs))
		case "job":
			p.Job = w[i+1]
		case "rank":
			rank, size, _ := strings.Cut(w[i+1], "/")
			p.Rank, p.JobSize = int(natural(rank)), int(natural(size))
		case "run":
			p.Run = natural(w[i+1])
		case "format":
			p.Format = uint32(natural(w[i+1]))
		case "made":
			p.CreatedMono = p.mono(duration(w[i+1]))
			p.CreatedWall += int64(duration(w[i+1]))
		case "seen":
			p.Seen = p.mono(duration(w[i+1]))
		case "paused":
			p.Paused, p.Resumed = p.mono(duration(w[i+1])), p.mono(duration(w[i+2]))
		case "starved":
			p.Starved = duration(w[i+1])
		case "told":
			p.Terminated = p.mono(duration(w[i+1]))
		case "delivered":
			p.Delivered = p.mono(duration(w[i+1]))
		case "exported":
			p.Exported = p.mono(duration(w[i+1]))
		case "cut":
			p.cut = int(natural(w[i+1]))
		case "damage":
			p.damage = w[i+1]
		case "jump":
			p.LatchMono = p.CreatedMono + 1
			p.LatchWall = p.CreatedWall + 1 + int64(duration(w[i+1]))
		}
	}
	s.procs = append(s.procs, p)
}

// agentSpace is the pid namespace of agents.
const agentSpace = 1

// numbered is the process's pid as the writers of the ledger have it, and their pid namespace.
func (p *player) numbered() (pid int, space uint64) {
	if p.AgentPID != 0 {
		return p.AgentPID, agentSpace
	}
	return p.PID, 0
}

// kernelBoot is the boot id of a machine; that of this one for here.
func kernelBoot(t testing.TB, host string) (boot [16]byte) {
	if host != here {
		sum := sha256.Sum256([]byte(host))
		copy(boot[:], sum[:])
		return boot
	}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hex.Decode(boot[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))); err != nil {
		t.Fatal(err)
	}
	return boot
}

func (s *stage) find(name string) *player {
	for _, p := range s.procs {
		if p.name == name {
			return p
		}
	}
	panic("no process " + name)
}

func (p *player) mono(at time.Duration) int64 { return int64(at + p.on.clock) }

// slot is the process's part of a communicator, in its table.
func (p *player) slot(comm string) *tape.Slot {
	number, ok := p.comms[comm]
	if !ok {
		panic(p.name + " is not in " + comm)
	}
	return &p.Slots[number-1]
}

func commID(name string) (id lifecycle.CommID) {
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}

func (s *stage) moment(at time.Duration, p *player, w []string) {
	now := p.mono(at)
	if w[0] == "exits" {
		exit := process.Exit{Known: w[1] != "?", Signal: unix.SignalNum(w[1])}
		if exit.Known && exit.Signal == 0 {
			exit.Code = int(natural(w[1]))
		}
		dir := filepath.Join(s.dir, p.Job)
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			boot := process.BootID(p.KernelBoot)
			pid, space := p.numbered()
			err = process.AppendEntry(dir, process.Entry{
				Time: noon.Add(at), Mono: now, Boot: boot.String(), PIDSpace: space, Rank: p.Rank, PID: pid, Exit: exit,
				Found: slices.Contains(w[2:], "found"), Followed: slices.Contains(w[2:], "followed"),
			})
		}
		if err != nil {
			panic(err)
		}
		return
	}
	if w[0] == "comm" || w[0] == "nccl" {
		rank, size, _ := strings.Cut(w[2], "/")
		info := tape.CommInfo{
			ID: commID(w[1]), Name: w[1], Rank: int(integer(rank)), Size: int(natural(size)),
			Nodes: len(s.hosts), Engine: "host",
		}
		if w[0] == "nccl" {
			info.Name, info.Engine = "", "nccl 2.28.9"
		}
		if len(w) > 3 {
			info.Parent = commID(w[3])
		}
		number := uint32(len(p.Slots) + 1)
		p.comms[w[1]] = number
		p.Comm(now, number, info)
		p.Slots = append(p.Slots, tape.Slot{
			CommInfo: info, Index: int(number - 1), Generation: number, Root: number, State: lifecycle.StateReady,
			Wait: -1, Op: tape.Signature{Peer: -1},
		})
		return
	}
	slot, times := p.slot(w[1]), uint64(0)
	if step, n, counted := strings.Cut(w[0], ":"); counted {
		w[0], times = step, natural(n)
	}
	switch w[0] {
	case "act":
		if w[2] == "init" {
			if slot.State = lifecycle.StateInitializing; w[4] == "ok" {
				slot.State = lifecycle.StateReady
			}
		}
		r := tape.LifeRecord{
			Time: now, Act: act(w[2]), Call: callOfAct(w[2]), Seq: natural(w[3]), Peer: -1,
			State: slot.State,
		}
		switch w[4] {
		case "start":
			r.Stage = tape.StageStart
		case "phase":
			r.Stage, r.Phase, r.Text = tape.StagePhase, phase(w[5]), strings.Join(w[6:], " ")
		case "ok":
			r.Stage, r.Text = tape.StageEnd, strings.Join(w[5:], " ")
		default:
			r.Stage, r.Code, r.Peer, r.Text = tape.StageEnd, code(w[4]), int32(integer(w[5])), strings.Join(w[6:], " ")
		}
		p.Life(slot.Generation, r)
	case "op":
		s.op(p, slot, now, w[2:])
	case "failed":
		slot.State = lifecycle.StateFailed
		p.Life(slot.Generation, tape.LifeRecord{
			Time: now, Call: call(w[2]), Stage: tape.StageEnd, Seq: natural(w[3]), Code: code(w[4]),
			Peer: int32(integer(w[5])), State: slot.State, Text: strings.Join(w[6:], " "),
		})
	case "refused":
		var site lifecycle.Site
		if at, ok := strings.CutPrefix(w[4], "at="); ok {
			file, line, _ := strings.Cut(at, ":")
			site, w = lifecycle.Site{File: file, Line: int(natural(line))}, slices.Delete(w, 4, 5)
		}
		p.Life(slot.Generation, tape.LifeRecord{
			Time: now, Times: uint32(times), Act: act(w[2]), Call: callOfAct(w[2]), Stage: tape.StageMisuse,
			Code: code(w[3]), Peer: -1, State: slot.State, Text: strings.Join(w[4:], " "), Site: site,
		})
	default:
		panic("no step " + w[0])
	}
}

// op plays a moment of an operation on the rings and in the table, as the runtime does.
func (s *stage) op(p *player, slot *tape.Slot, now int64, w []string) {
	sig := tape.Signature{Call: call(w[0]), DataType: 8, Bytes: natural(w[2]), Peer: int32(integer(w[3]))}
	r := tape.OpRecord{Time: now, Seq: natural(w[1]), Signature: sig, Wait: -1, Algorithm: 1}
	switch w[4] {
	case "start":
		r.Stage, r.Start = tape.StageStart, now
		slot.Launched++
		slot.Seq, slot.Op, slot.OpStart, slot.Phase, slot.Wait, slot.WaitSince = r.Seq, sig, now, tape.PhaseNone, -1, 0
		p.untold[slot.Generation] = r // until it is more than a start
		return
	case "phase":
		r.Stage, r.Start, r.Phase, r.Wait = tape.StagePhase, slot.OpStart, phase(w[5]), slot.Wait
		slot.Phase = r.Phase
	case "wait":
		r.Stage, r.Start, r.Phase, r.Wait = tape.StageWait, slot.OpStart, slot.Phase, int32(integer(w[5]))
		slot.Wait, slot.WaitSince = r.Wait, now
	case "device":
		r.Stage, r.Start, r.Time = tape.StageDevice, slot.OpStart, slot.OpStart+int64(duration(w[5]))
	default:
		r.Stage, r.Start, r.Phase, r.Code = tape.StageEnd, slot.OpStart, slot.Phase, code(w[4])
		slot.Completed++
		slot.LastEnd, slot.Phase, slot.Wait, slot.WaitSince = now, tape.PhaseNone, -1, 0
	}
	if start, ok := p.untold[slot.Generation]; ok && r.Stage != tape.StageEnd {
		p.Op(slot.Generation, start)
	}
	delete(p.untold, slot.Generation)
	p.Op(slot.Generation, r)
}

// tally counts operations that all took the same time. Only the name shows whose tally it is.
func (s *stage) tally(p *player, w []string) {
	slot, n, mean := p.slot(w[0]), natural(w[3]), duration(w[4])
	sig := tape.Signature{Call: call(w[1]), Peer: -1, Bytes: natural(w[2])}
	engine := slot.Engine
	if len(w) > 5 {
		engine = w[5]
	}
	class := tape.SizeClass(sig.Bytes)
	i := slices.IndexFunc(p.Tallies, func(t tape.Tally) bool {
		return t.Name == slot.Name && t.Engine == engine && t.Call == sig.Call && t.SizeClass == class
	})
	if i < 0 {
		i = len(p.Tallies)
		p.Tallies = append(p.Tallies, tape.Tally{Name: slot.Name, Engine: engine, Call: sig.Call, SizeClass: class})
	}
	t := &p.Tallies[i]
	t.Bytes += n * sig.Bytes
	t.Time += time.Duration(n) * mean
	t.Durations[tape.DurationBucket(mean)] += n
	bw := sig.BusFactor(slot.Rank, slot.Size) * float64(sig.Bytes) / mean.Seconds()
	if bw > 0 && !slot.Enqueues() {
		t.Bandwidth += float64(n) * bw
		t.Bandwidths[tape.BandwidthBucket(bw)] += n
	}
}

func (s *stage) together(at time.Duration, w []string) {
	comm := w[0]
	for _, p := range s.procs {
		if _, ok := p.comms[comm]; !ok {
			continue
		}
		if w[1] == "act" {
			s.moment(at, p, []string{"act", comm, w[2], w[3], "start"})
			s.moment(at+duration(w[4]), p, []string{"act", comm, w[2], w[3], "ok"})
			continue
		}
		s.moment(at, p, []string{"op", comm, w[1], w[2], w[3], "-1", "start"})
		s.moment(at+duration(w[4]), p, []string{"op", comm, w[1], w[2], w[3], "-1", "ok"})
	}
}

// write leaves the tapes in the folder.
func (s *stage) write() {
	s.t.Helper()
	for _, p := range s.procs {
		b := p.Bytes()
		switch p.damage {
		case "header":
			b[150] ^= 0xff
		case "slots":
			b[4096+192+128+3] ^= 0xff
		case "tally": // the second one's name
			b[tapetest.TallyOffset+tapetest.TallyBytes+3] ^= 0xff
		case "count": // the second one's bandwidth is no number
			copy(b[tapetest.TallyOffset+tapetest.TallyBytes+152:], []byte{1, 2, 3, 4, 5, 6, 0xff, 0x7f})
		}
		if p.cut > 0 {
			b = b[:p.cut]
		}
		names := []string{p.name + ".tape"}
		if p.twice {
			names = append(names, filepath.Join("copy", p.name+".tape"))
		}
		for _, name := range names {
			if err := s.file(filepath.Join(p.Job, name), string(b)); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// report writes the tapes, and prints what is to be read from them.
func (s *stage) report(args []datadriven.CmdArg) string {
	s.write()
	opts := postmortem.Options{Last: 8}
	for _, a := range args {
		switch value := a.Vals[0]; a.Key {
		case "job":
			opts.Job = value
		case "run":
			opts.Run = int(integer(value))
		case "last":
			opts.Last = int(natural(value))
		case "since":
			opts.Since = duration(value)
		case "comm":
			opts.Comm = value
		case "rank":
			opts.Ranks = append(opts.Ranks, int(natural(value)))
		case "at":
			opts.At = noon.Add(duration(value))
		default:
			s.t.Fatalf("no argument %s", a.Key)
		}
	}
	r, err := postmortem.Read([]string{s.dir}, opts)
	if err != nil {
		return err.Error() + "\n"
	}
	var out strings.Builder
	if err := r.Write(&out, postmortem.TextOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return out.String()
}

// The script's words.

func readScript(t *testing.T, script string, opts postmortem.Options) *postmortem.Report {
	t.Helper()
	s := newStage(t)
	s.play(script)
	s.write()
	r, err := postmortem.Read([]string{s.dir}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

package tapetest_test

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// playGo is the player of Go's writer: it plays a script, see testWriter, onto a new tape in dir, and returns its path.
// The step killed ends this process; after crash, it must end by itself.
func playGo(dir string, script io.Reader) (path string, err error) {
	w, err := tape.Create(tape.Config{
		Dir: dir, Slots: tapeSlots, LifeRecords: lifeRecords, OpRecords: opRecords, Slow: time.Hour,
	})
	if err != nil {
		return "", err
	}
	p := playing{w: w, comms: make(map[int]*tape.CommWriter), infos: make(map[int]tape.CommInfo)}
	lines := bufio.NewScanner(script)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if word == "crash" {
			return w.Path(), nil
		}
		if err := p.step(word, strings.NewReader(rest)); err != nil {
			return "", fmt.Errorf("%q: %w", lines.Text(), err)
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return w.Path(), w.Close()
}

// playing is a script in progress.
type playing struct {
	w           *tape.Writer
	comms       map[int]*tape.CommWriter
	infos       map[int]tape.CommInfo
	site, first lifecycle.Site // of the next act
}

func (p *playing) step(word string, in *strings.Reader) (err error) {
	scan := func(to ...any) {
		if err == nil {
			_, err = fmt.Fscan(in, to...)
		}
	}
	var n int
	if word != "site" && word != "first" {
		scan(&n)
	}
	c := p.comms[n]
	switch word {
	case "comm":
		var id, parent string
		var info tape.CommInfo
		var from int
		scan(&id, &parent, &info.Name, &info.Rank, &info.Size, &info.Nodes, &info.Engine, &from)
		if err == nil {
			info.ID, err = lifecycle.ParseCommID(id)
		}
		if err == nil {
			info.Parent, err = lifecycle.ParseCommID(parent)
		}
		p.comms[n], p.infos[n] = p.w.Comm(info), info
		p.comms[n].From(p.comms[from])
	case "describe":
		info := p.infos[n]
		scan(&info.Name, &info.Nodes, &info.Engine)
		c.Describe(info)
	case "state":
		var state lifecycle.State
		scan(&state)
		c.State(state)
	case "site":
		p.site, err = scanSite(in)
	case "first":
		p.first, err = scanSite(in)
	case "life":
		r := tape.LifeRecord{Site: p.site, First: p.first}
		p.site, p.first = lifecycle.Site{}, lifecycle.Site{}
		var shared int
		var child string
		scan(&r.Act, &r.Call, &r.Stage, &r.Seq, &r.Phase, &r.Code, &r.State, &r.Peer, &r.Start, &r.Ops, &shared, &child)
		if err == nil {
			r.Child, err = lifecycle.ParseCommID(child)
		}
		text, _ := io.ReadAll(in)
		r.Shared, r.Text = shared != 0, strings.TrimSpace(string(text))
		c.Life(r)
	case "start":
		var number uint64
		var sig tape.Signature
		var algorithm uint8
		scan(&number, &sig.Call, &sig.DataType, &sig.Reduction, &sig.Peer, &sig.Bytes, &algorithm)
		c.Start(number, sig, algorithm)
	case "phase":
		var phase tape.Phase
		scan(&phase)
		c.Phase(phase)
	case "wait":
		var peer int32
		scan(&peer)
		c.Wait(peer)
	case "end":
		var launched uint64
		var code lifecycle.Code
		scan(&launched, &code)
		c.End(launched, code)
	case "close":
		c.Close()
	case "both", "killed":
		var other int
		var times uint64
		scan(&other, &times)
		if err == nil && word == "both" {
			var both sync.WaitGroup
			for _, c := range []*tape.CommWriter{c, p.comms[other]} {
				both.Go(func() { operations(c, times) })
			}
			both.Wait()
		} else if err == nil {
			reached := make(chan struct{})
			go operations(p.comms[other], math.MaxUint64)
			go func() {
				operations(c, times)
				close(reached)
				operations(c, math.MaxUint64)
			}()
			<-reached
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	default:
		return fmt.Errorf("no such step")
	}
	return err
}

// operations starts and ends operations.
func operations(c *tape.CommWriter, times uint64) {
	sig := tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 8}
	for range times {
		c.End(c.Start(0, sig, 1), lifecycle.CodeOK)
	}
}

func scanSite(in *strings.Reader) (s lifecycle.Site, err error) {
	var ns int64
	_, err = fmt.Fscan(in, &s.Func, &s.File, &s.Line, &s.Goroutine, &ns)
	if s.Func == "-" {
		s.Func = ""
	}
	if s.File == "-" {
		s.File = ""
	}
	if ns != 0 {
		s.Time = time.Unix(0, ns)
	}
	return s, err
}

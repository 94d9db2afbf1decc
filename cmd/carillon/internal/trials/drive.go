package trials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/job"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/jobsim"
	"github.com/carillon-rt/carillon/ras/jobsim/corpus"
	"github.com/carillon-rt/carillon/ras/postmortem"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Times of a trial with real processes.
const (
	pollTime = 20 * time.Millisecond
	longest  = 2 * time.Minute
	grace    = 3 * time.Second
)

// Play plays a trial with real processes. folder must be empty, and must be used for this trial only.
func Play(ctx context.Context, seed uint64, most int, kind *corpus.Kind, folder string) (*corpus.Result, error) {
	t := corpus.Draw(seed, most, kind)
	p := &play{trial: t, folder: folder, tapes: filepath.Join(folder, "tapes"), began: time.Now()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(p.take), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	defer server.Close() //nolint:errcheck // the processes have ended
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &t.Layout
	signals := make(chan os.Signal, 1)
	cfg := job.Config{
		Program: []string{
			program, "corpus", Command, folder, strconv.FormatUint(seed, 10), strconv.Itoa(most), kind.Name,
		},
		Ranks: l.Processes(), Nodes: l.Hosts, Name: "corpus", TapeDir: p.tapes, TapesAt: p.tapes,
		Linger: longest, Grace: grace, Stdout: null, Stderr: null, Quiet: true, Signals: signals,
		Env: append(os.Environ(),
			"CARILLON_STALL_THRESHOLD="+(corpus.Threshold/scale).String(),
			"CARILLON_SLOW_THRESHOLD="+(time.Second/scale).String(),
			"CARILLON_RAS_WEBHOOKS=http://"+listener.Addr().String()+"/", "OTEL_SDK_DISABLED=true"),
	}
	done := make(chan error, 1)
	go func() {
		_, err := job.Run(ctx, cfg)
		done <- err
	}()
	defer func() {
		for _, process := range p.processes {
			_ = process.Release()
		}
	}()
	ended, err := p.watch(done)
	if err != nil {
		return nil, err
	}
	return p.end(signals, done, ended)
}

type play struct {
	trial  *corpus.Trial
	folder string
	tapes  string
	began  time.Time // when all processes had begun

	processes []*os.Process // the processes that have begun, in order
	mu        sync.Mutex
	told      []corpus.Told
	struck    [2]bool
}

func (p *play) take(_ http.ResponseWriter, r *http.Request) {
	var ev bus.Event
	if err := json.NewDecoder(r.Body).Decode(&ev); err != nil || ev.Type != semconv.EventVerdictOpened {
		return
	}
	var v verdict.Verdict
	if data, ok := ev.Data.(json.RawMessage); !ok || json.Unmarshal(data, &v) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, corpus.Told{At: ev.Time.UnixNano(), Verdict: v})
}

// watch lets the job run until the trial is over, and tells whether the job ended on its own.
func (p *play) watch(done <-chan error) (ended bool, err error) {
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			p.faults()
			return true, err
		case <-tick.C:
		}
		if !p.complete() {
			continue
		}
		p.faults()
		p.strike()
		if p.trial.Over(time.Since(p.began)*scale, time.Now().UnixNano(), scale) {
			return false, nil
		}
	}
}

// complete tells whether all processes have begun; the trial's time starts then. It opens a handle of each process, as
// pids are reused.
func (p *play) complete() bool {
	for len(p.processes) < p.trial.Layout.Processes() {
		text, err := os.ReadFile(filepath.Join(p.folder, fmt.Sprintf("pid-%d", len(p.processes))))
		if err != nil {
			return false
		}
		pid, _ := strconv.Atoi(string(text))
		process, err := os.FindProcess(pid)
		if err != nil {
			return false
		}
		p.processes = append(p.processes, process)
		p.began = time.Now()
	}
	return true
}

func (p *play) faults() {
	for i := range p.trial.Faults {
		f := &p.trial.Faults[i]
		for process := range p.trial.Layout.Processes() {
			text, err := os.ReadFile(filepath.Join(p.folder, fmt.Sprintf("fault-%d-%d", i, process)))
			if since, _ := strconv.ParseInt(string(text), 10, 64); err == nil && (f.Since == 0 || since < f.Since) {
				f.Since = since
			}
		}
	}
}

func (p *play) strike() {
	l := &p.trial.Layout
	for i := range p.trial.Faults {
		f := &p.trial.Faults[i]
		if f.Kind.Strike == corpus.None || p.struck[i] || time.Since(p.began)*scale < f.Delay() {
			continue
		}
		p.struck[i] = true
		if !p.signal(f.Rank/l.PerProcess, 0) {
			continue
		}
		f.Since = time.Now().UnixNano()
		sig := syscall.SIGSTOP
		if f.Kind.Strike == corpus.Kills {
			sig = syscall.SIGKILL
		}
		for _, process := range f.Processes(l) {
			p.signal(process, sig)
			if f.Kind.Passes {
				time.AfterFunc(f.For/scale, func() { p.signal(process, syscall.SIGCONT) })
			}
		}
	}
}

// signal sends a process a signal, and tells whether the process was running.
func (p *play) signal(process int, sig syscall.Signal) bool {
	return p.processes[process].Signal(sig) == nil
}

// end ends the job in the trial's way and reads its tapes.
func (p *play) end(signals chan<- os.Signal, done <-chan error, ended bool) (*corpus.Result, error) {
	res := &corpus.Result{
		Trial: p.trial, Began: p.began.UnixNano(), Over: time.Now().UnixNano(), Scale: scale,
		Gone: ended && p.trial.Errors == jobsim.Exit,
	}
	p.mu.Lock()
	res.Live = append(res.Live, p.told...)
	p.mu.Unlock()
	kill := func(between time.Duration) {
		for i := range p.processes {
			p.signal(i, syscall.SIGKILL)
			time.Sleep(between)
		}
	}
	if ended {
		return res, p.read(res)
	}
	switch p.trial.End {
	case corpus.LeftAlone:
		err := p.read(res)
		kill(0)
		return res, errors.Join(err, <-done)
	case corpus.Cancelled:
		signals <- syscall.SIGTERM
	case corpus.KilledAtOnce:
		kill(0)
	case corpus.KilledInTurn:
		kill(corpus.BetweenKills)
	}
	return res, errors.Join(<-done, p.read(res))
}

func (p *play) read(res *corpus.Result) error {
	report, err := postmortem.Read([]string{p.tapes}, postmortem.Options{Last: 1, Run: -1})
	if err == nil {
		res.Read(report)
	}
	return err
}

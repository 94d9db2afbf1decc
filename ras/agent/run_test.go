package agent

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/ras/mesh/sim"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// twoProcesses starts a mesh of two processes, on a host each. handler makes the Handler of a rank.
func twoProcesses(t *testing.T, handler func(rank int) func(context.Context, string, []byte) []byte) *sim.Job {
	t.Helper()
	j, err := sim.StartJob(t.Context(), sim.JobConfig{
		Seed: 1, Link: sim.Link{Delay: time.Millisecond}, Machines: 2, Each: 1, Tuning: mesh.LAN(),
		Member: func(r *sim.Rank, c *mesh.Config) {
			c.Handler = func(ctx context.Context, from string, question []byte) []byte {
				return handler(r.Process.Member().Rank)(ctx, from, question)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// stub answers for a process without an agent.
func stub(t *testing.T, answer func(*message) []byte) func(context.Context, string, []byte) []byte {
	return func(_ context.Context, _ string, question []byte) []byte {
		m, err := decode(question)
		if err != nil {
			t.Error(err)
			return nil
		}
		return answer(m)
	}
}

// pair starts a coordinator whose answers the test decides, and returns the agent of the other process.
func pair(t *testing.T, coordinator func(*message) []byte) (follower *Agent) {
	t.Helper()
	j := twoProcesses(t, func(rank int) func(context.Context, string, []byte) []byte {
		if rank == 1 {
			return follower.Handle
		}
		return stub(t, coordinator)
	})
	self := j.Ranks[1].Process.Member()
	follower = New(self, func() verdict.Note { return verdict.Note{Member: self.Name} }, Config{
		Stuck: func() []lifecycle.CommID { return []lifecycle.CommID{{1}} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		follower.Run(ctx, j.Ranks[1].Mesh)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return follower
}

// TestHostOutOfReachIsNotWaitedFor: a job that ends while a host is out of reach withdraws its verdict: of the
// processes that can be reached none is left to do so, and those of the host don't know of the verdict.
func TestHostOutOfReachIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a *Agent
		j := twoProcesses(t, func(rank int) func(context.Context, string, []byte) []byte {
			if rank == 0 {
				return a.Handle
			}
			return stub(t, func(*message) []byte { return []byte("ok") })
		})
		defer func() {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}()
		var told []string
		note := func() verdict.Note { // it is in a communicator with the other one
			return verdict.Note{Member: j.Ranks[0].Name(), Slots: []verdict.Slot{{
				Comm: lifecycle.CommID{1}, Size: 2, Job: -1, Wait: -1, State: lifecycle.StateReady,
			}}}
		}
		a = New(j.Ranks[0].Process.Member(), note, Config{
			Event: func(ev bus.Event, outward bool) {
				if ev.Reason == verdict.RankUnreachable.String() {
					told = append(told, fmt.Sprintf("%v %v", ev.Stage, outward))
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Run(ctx, j.Ranks[0].Mesh)
		}()
		j.Network.Cut(j.Machines[0], j.Machines[1], true)
		one := j.Ranks[1]
		if _, _, err := j.WaitTold(time.Minute, time.Now(), mesh.Unreachable, one.Name(), one); err != nil {
			t.Error(err)
		}
		// Its state isn't certain at once, so that only the next look finds the verdict, without further news.
		a.Member(mesh.Event{Status: mesh.Status{Member: j.Ranks[1].Process.Member(), State: mesh.Unreachable}})
		isOpen := sim.Until(time.Minute, func() bool { return len(a.Open()) == 1 })
		cancel()
		<-done
		if want := []string{"opened true", "closed true"}; !isOpen || !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// TestWithdrawalIsHeardBeforeItsCoordinatorLeaves: else the others would withdraw the verdict again, each in turn.
func TestWithdrawalIsHeardBeforeItsCoordinatorLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a *Agent
		var heard []int // open verdicts of each broadcast
		j := twoProcesses(t, func(rank int) func(context.Context, string, []byte) []byte {
			if rank == 0 {
				return a.Handle
			}
			return stub(t, func(m *message) []byte {
				if m.Kind == tellOpen {
					heard = append(heard, len(m.Open))
				}
				return []byte("ok")
			})
		})
		var over atomic.Bool
		note := func() verdict.Note {
			if over.Load() {
				return verdict.Note{Member: j.Ranks[0].Name()}
			}
			n := failed()
			n.Member = j.Ranks[0].Name()
			return n
		}
		ctx, cancel := context.WithCancel(t.Context())
		a = New(j.Ranks[0].Process.Member(), note, Config{Open: func(open []verdict.Verdict) {
			if len(open) == 0 {
				cancel() // the process leaves at the first moment at which it may
			}
			over.Store(true)
		}})
		a.Trouble()
		a.Run(ctx, j.Ranks[0].Mesh)
		// The broadcasts before are of looks at the members that join.
		if want := []int{1, 0}; len(heard) < 2 || !slices.Equal(heard[len(heard)-2:], want) {
			t.Errorf("the other process heard of %v open verdicts, want %v", heard, want)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestTroubleIsToldUntilItIsHeard: trouble is told again if the coordinator doesn't answer; else, once.
func TestTroubleIsToldUntilItIsHeard(t *testing.T) {
	for name, c := range map[string]struct {
		deaf int32 // to so many attempts
		want int32
	}{"at once": {0, 1}, "the third time": {2, 3}, "never": {1000, mostTries}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heard atomic.Int32
				a := pair(t, func(m *message) []byte {
					if m.Kind != askLook || !slices.Equal(m.About, []lifecycle.CommID{{1}}) {
						t.Errorf("the coordinator is sent %q about %v", m.Kind, m.About)
					}
					if heard.Add(1) <= c.deaf {
						return nil
					}
					return []byte("ok")
				})
				time.Sleep(time.Second)
				a.Trouble()
				time.Sleep(2 * time.Minute)
				if n := heard.Load(); n != c.want {
					t.Errorf("the coordinator heard %d times, want %d", n, c.want)
				}
			})
		})
	}
}

// failure is the step of the tape with which a communicator failed, because rank 1 died.
func failure() *model.Step {
	return &model.Step{Failed: true, Event: &tape.Event{
		IsLife: true, Generation: 1, Comm: tape.CommInfo{ID: lifecycle.CommID{1}, Size: 2},
		Life: tape.LifeRecord{Stage: tape.StageEnd, Code: lifecycle.CodeRankDead, Peer: 1},
	}}
}

// failed is a note of a process whose communicator failed because rank 1 died.
func failed() verdict.Note {
	return verdict.Note{Member: "a-1", Rank: 0, Slots: []verdict.Slot{{
		Comm: lifecycle.CommID{1}, Size: 2, Job: 0, Wait: -1, State: lifecycle.StateFailed, Seq: 1, Begun: 1,
		Failed: true, Op: tape.Signature{Call: lifecycle.CallBarrier, Peer: -1},
		Failure: &verdict.Failure{
			Code: lifecycle.CodeRankDead, Call: lifecycle.CallBarrier, Seq: 1, Peer: 1,
			Wait: 1, Text: "rank 1 died",
		},
	}}}
}

// TestSettleWaitsForALook: Settle waits for a look that began after the failure, alone and in a process that follows.
func TestSettleWaitsForALook(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := New(mesh.Member{Name: "a-1"}, failed, Config{})
			settled(t, a, 0)
			a.Failed(a.self, failure())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			a.Settle(ctx)
			cancel()
			if took := time.Since(began); took != time.Second {
				t.Errorf("Settle returned after %v though nobody looked, want 1s", took)
			}
			running, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { a.Run(running, nil); close(done) }()
			settled(t, a, 500*time.Millisecond)
			if a.Stats().Rounds != 1 {
				t.Errorf("%d looks, want 1", a.Stats().Rounds)
			}
			// What it found is open: it looks once more whether that still holds.
			time.Sleep(10 * time.Millisecond)
			settled(t, a, 500*time.Millisecond)
			if open := len(a.Open()); open != 1 || a.Stats().Rounds != 2 {
				t.Errorf("%d verdicts are open, and there were %d looks, want 1 and 2", open, a.Stats().Rounds)
			}
			stop()
			<-done
		})
	})
	t.Run("following", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := pair(t, func(*message) []byte { return []byte("ok") })
			time.Sleep(time.Second)
			a.Failed(a.self, failure())
			word := func(turn uint64) { a.Handle(t.Context(), "host1-1", encodeOpen("host1-1", turn, nil, nil)) }
			word(1) // of an earlier look
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			a.Settle(ctx)
			cancel()
			if took := time.Since(began); took != time.Second {
				t.Errorf("Settle returned after %v, with a word on an earlier look, want 1s", took)
			}
			a.Handle(t.Context(), "host1-1", (&message{Kind: askNotes}).encode())
			word(2)
			settled(t, a, 500*time.Millisecond)
		})
	})
}

// settled checks that Settle returns by itself within a time.
func settled(t *testing.T, a *Agent, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	a.Settle(ctx)
	if took := time.Since(began); took > within {
		t.Errorf("Settle took %v, want at most %v", took, within)
	}
}

// TestHeldUpAgain: while operations are held up the job is looked at ever more rarely, but not after a verdict.
func TestHeldUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		lost := func() bool { at := time.Since(began); return at > 25*time.Second && at < 40*time.Second }
		var opened, after int // looks since it was withdrawn
		self := mesh.Member{Name: "p0", Rank: 0, JobSize: 2}
		slot := verdict.Slot{Comm: lifecycle.CommID{1}, Size: 2, Job: -1, Wait: -1, State: lifecycle.StateReady}
		a := New(self, func() verdict.Note {
			return verdict.Note{Member: self.Name, JobSize: 2, Slots: []verdict.Slot{slot}}
		}, Config{
			HeldUp: func() bool { return true },
			Others: func([]verdict.Note) []verdict.Note {
				other := verdict.Note{Member: "p1", Rank: 1, JobSize: 2, Slots: []verdict.Slot{slot}}
				other.Slots[0].Rank = 1
				if lost() {
					other.Fate, other.FateAge = verdict.Unreachable, time.Minute
				} else if time.Since(began) > 40*time.Second {
					after++
				}
				return []verdict.Note{other}
			},
			Event: func(ev bus.Event, _ bool) {
				if ev.Reason == verdict.RankUnreachable.String() && ev.Stage == bus.Opened {
					opened++
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Run(ctx, nil)
		}()
		<-time.After(62 * time.Second) // in ordinary pauses, the next look would be after 64 s
		cancel()
		<-done
		if opened != 1 || after < 3 { // with the one that withdrew it
			t.Errorf("%d verdicts, and %d looks after the last", opened, after)
		}
	})
}

package mesh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// putTo sends n questions of asker to a member, each with another id.
func putTo(m *Mesh, asker string, body func(i int) string, n int) {
	for i := range n {
		(&delegate{m}).NotifyMsg(encode(msgQuestion, question{
			ID: rand.Text(), Asker: asker, Reply: m.self.Addr, ReplyTo: m.self.Name, Left: 2 * time.Second,
			Units: []unit{{Member: m.self.instance()}}, Body: []byte(body(i)),
		}))
	}
}

// TestWhoAsksTooOftenIsNotAnswered: a member that asks too often gets no answers, and does not keep others from theirs.
func TestWhoAsksTooOftenIsNotAnswered(t *testing.T) {
	var calls atomic.Int64
	m := loopback(t, "a", func(c *Config) {
		c.Handler = func(context.Context, string, []byte) []byte { calls.Add(1); return []byte("here") }
	})
	const asked = 10_000
	putTo(m, "greedy-1", func(i int) string { return fmt.Sprint(i) }, asked)
	limited := m.Stats().Limited.Load()
	if answered := asked - limited; answered < askerBurst/2 || answered > askerBurst+askerRate*10 {
		t.Errorf("%d of %d questions were taken, want about %d", answered, asked, askerBurst)
	}
	putTo(m, "modest-1", func(i int) string { return fmt.Sprint("modest ", i) }, 3)
	eventually(t, "the modest one is answered", func() bool {
		return m.Stats().Limited.Load() == limited && calls.Load() >= 4
	})
}

// TestHandlersAreBounded: however many questions come, at most so many handlers run at a time.
func TestHandlersAreBounded(t *testing.T) {
	var mu sync.Mutex
	running, most, calls := 0, 0, 0
	gate := make(chan struct{})
	m := loopback(t, "a", func(c *Config) {
		c.Handler = func(context.Context, string, []byte) []byte {
			mu.Lock()
			running++
			calls++
			most = max(most, running)
			mu.Unlock()
			<-gate
			mu.Lock()
			running--
			mu.Unlock()
			return []byte("here")
		}
	})
	release := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release) // before the mesh is closed, which waits for its handlers
	const askers = 30
	var asking sync.WaitGroup
	var answered atomic.Int64
	for i := range askers {
		asking.Go(func() {
			q, err := m.Ask(t.Context(), fmt.Append(nil, "question ", i))
			if err != nil {
				t.Error(err)
				return
			}
			for a := range q {
				if string(a.Body) == "here" {
					answered.Add(1)
				}
			}
		})
	}
	eventually(t, "as many run as may", func() bool { mu.Lock(); defer mu.Unlock(); return running == handlers })
	release()
	asking.Wait()
	if calls != askers || most != handlers || answered.Load() != askers {
		t.Errorf("%d were answered by %d calls, %d at a time; want %d by as many, %d at a time", answered.Load(), calls,
			most, askers, handlers)
	}
}

func TestAskSaysWhatIsWrong(t *testing.T) {
	m := loopback(t, "a", nil)
	if _, err := m.Ask(t.Context(), make([]byte, MaxQuestion+1)); err == nil {
		t.Error("a question that is too long was asked")
	}
	q, err := m.Ask(t.Context(), nil, "nobody-1", m.Self().Name)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for a := range q {
		t.Errorf("answered: %+v", a)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v, with nobody to wait for", took)
	}
}

func TestAskAfterClose(t *testing.T) {
	m := loopback(t, "a", nil)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Ask(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("asked after Close: %v, want %v", err, ErrClosed)
	}
	if _, err := m.Join(t.Context(), m.Self().Addr); err != nil {
		t.Errorf("joined itself after Close: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

package health_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
)

// declare declares or fails the test.
func declare(t *testing.T, c *health.Conditions, d health.Declaration) *health.Warnable {
	t.Helper()
	w, err := c.Declare(d)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// listed writes the open conditions, a line each: "code (subject): text", and what silences them.
func listed(c *health.Conditions) []string {
	var lines []string
	for _, condition := range c.List() {
		line := condition.String()
		if condition.Silent() {
			line += " <- " + condition.Cause
		}
		lines = append(lines, line)
	}
	return lines
}

func expectConditions(t *testing.T, c *health.Conditions, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, listed(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestASymptomIsSilentWhileItsCauseIsShown: if both have the same subject, or one of them has none; also for indirect
// causes.
func TestASymptomIsSilentWhileItsCauseIsShown(t *testing.T) {
	c := &health.Conditions{}
	lost := declare(t, c, health.Declaration{Code: "lost"})
	throttled := declare(t, c, health.Declaration{Code: "throttled", DependsOn: []string{"lost"}})
	slow := declare(t, c, health.Declaration{Code: "slow", DependsOn: []string{"throttled"}})

	throttled.Set(health.Finding{Subject: "GPU 0", Text: "hot"})
	throttled.Set(health.Finding{Subject: "GPU 1", Text: "hot"})
	lost.Set(health.Finding{Severity: bus.Critical, Subject: "GPU 1", Text: "gone"})
	expectConditions(t, c, "lost (GPU 1): gone", "throttled (GPU 0): hot", "throttled (GPU 1): hot <- lost")

	throttled.Clear("GPU 0")
	throttled.Clear("GPU 1")
	slow.Set(health.Finding{Text: "half as fast"}) // about the process: explained by any GPU, even indirectly
	expectConditions(t, c, "lost (GPU 1): gone", "slow: half as fast <- lost")

	lost.Clear("GPU 0")
	expectConditions(t, c, "lost (GPU 1): gone", "slow: half as fast <- lost")
	lost.Clear("GPU 1")
	expectConditions(t, c, "slow: half as fast")

	lost.Set(health.Finding{Severity: bus.Critical, Text: "the driver is gone"}) // about all GPUs, not a particular one
	throttled.Set(health.Finding{Subject: "GPU 2", Text: "hot"})
	expectConditions(t, c, "lost: the driver is gone", "slow: half as fast <- throttled",
		"throttled (GPU 2): hot <- lost")
}

func TestDeclareRefuses(t *testing.T) {
	c := &health.Conditions{}
	declare(t, c, health.Declaration{Code: "a"})
	for want, d := range map[string]health.Declaration{
		"lower-case":                  {Code: "A"},
		"declared already":            {Code: "a"},
		`on "b", which is not decl`:   {Code: "c", DependsOn: []string{"a", "b"}},
		`on "self", which is not dec`: {Code: "self", DependsOn: []string{"self"}},
	} {
		if w, err := c.Declare(d); err == nil || !strings.Contains(err.Error(), want) || w != nil {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestSinceStaysAndChangesAreTold: a repeated finding changes nothing, and wakes nobody.
func TestSinceStaysAndChangesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &health.Conditions{}
		w := declare(t, c, health.Declaration{Code: "x", NotReady: true})
		began := time.Now()
		changes := func(act func()) bool {
			changed := c.Changed()
			act()
			select {
			case <-changed:
				return true
			default:
				return false
			}
		}
		for _, step := range []struct {
			name string
			act  func()
			want bool
		}{
			{"opens", func() { w.Set(health.Finding{Text: "a"}) }, true},
			{"says it again", func() { w.Set(health.Finding{Text: "a"}) }, false},
			{"says it otherwise", func() { w.Set(health.Finding{Text: "b"}) }, true},
			{"is worse", func() { w.Set(health.Finding{Text: "b", Severity: bus.Critical}) }, true},
			{"clears another", func() { w.Clear("y") }, false},
		} {
			time.Sleep(time.Second) // of the bubble's clock
			if got := changes(step.act); got != step.want {
				t.Errorf("%s: changed is %v", step.name, got)
			}
		}
		all := c.List()
		if len(all) != 1 || !all[0].Since.Equal(began.Add(time.Second)) || all[0].Text != "b" || !all[0].NotReady {
			t.Errorf("%+v", all)
		}
		if !changes(func() { w.Clear("") }) || len(c.List()) != 0 {
			t.Error("it was not cleared")
		}
	})
}

func TestConditionsAreBounded(t *testing.T) {
	c := &health.Conditions{}
	w := declare(t, c, health.Declaration{Code: "x"})
	for i := range health.MaxConditions + 5 {
		w.Set(health.Finding{Subject: fmt.Sprint(i), Text: strings.Repeat("ä", 4<<10)})
	}
	all := c.List()
	if len(all) != health.MaxConditions || len(all[0].Text) > 4<<10 || !strings.HasSuffix(all[0].Text, "ä…") {
		t.Errorf("%d are open, the text has %d bytes", len(all), len(all[0].Text))
	}
}

// TestAgesAreOfTheMomentOfReading: a sentence with ages in it grows older with its condition, and that is no change.
func TestAgesAreOfTheMomentOfReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &health.Conditions{}
		w := declare(t, c, health.Declaration{Code: "stalled"})
		set := func(age time.Duration) {
			w.Set(health.Finding{Text: "rank 2 left … ago", TextAfter: func(d time.Duration) string {
				return fmt.Sprintf("rank 2 left %v ago", age+d)
			}})
		}
		set(5 * time.Second)
		expectConditions(t, c, "stalled: rank 2 left 5s ago")
		changed := c.Changed()
		time.Sleep(2 * time.Second)
		expectConditions(t, c, "stalled: rank 2 left 7s ago")
		set(8 * time.Second)
		time.Sleep(time.Second)
		expectConditions(t, c, "stalled: rank 2 left 9s ago")
		select {
		case <-changed:
			t.Error("an age alone is told as a change")
		default:
		}
	})
}

func TestConditionsFromManyGoroutines(t *testing.T) {
	c := &health.Conditions{}
	w := declare(t, c, health.Declaration{Code: "x"})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				w.Set(health.Finding{Subject: fmt.Sprint(i), Text: fmt.Sprint(j)})
				c.List()
				c.Changed()
				if j%2 == 1 {
					w.Clear(fmt.Sprint(i))
				}
			}
		})
	}
	all.Wait()
	expectConditions(t, c)
}

func TestConditionJSON(t *testing.T) {
	want := health.Condition{
		Code: "gpu_xid", Subject: "GPU 3", Severity: bus.Critical, Text: "Xid 79", Advice: "drain the node",
		Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Cause: "gpu_lost", NotReady: true,
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	const wire = `{"code":"gpu_xid","subject":"GPU 3","severity":"critical","text":"Xid 79",` +
		`"advice":"drain the node","since":"2026-01-02T03:04:05Z","cause":"gpu_lost","not_ready":true}`
	if string(text) != wire {
		t.Errorf("got  %s\nwant %s", text, wire)
	}
	var got health.Condition
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`{"severity":"severity(9)"}`), &got); err == nil {
		t.Error("an unknown severity was read")
	}
}

// TestConditionsDecideAboutReadinessAlone: whatever is wrong, and however much, /livez stays as it was.
func TestConditionsDecideAboutReadinessAlone(t *testing.T) {
	c := &health.Conditions{}
	dead := declare(t, c, health.Declaration{Code: "rank_dead", NotReady: true})
	hot := declare(t, c, health.Declaration{Code: "throttled"})
	r := &health.Registry{}
	if err := r.Register("process", health.Live, 0, well); err != nil {
		t.Fatal(err)
	}
	s, err := health.Listen(t.Context(), health.Config{Registry: r, Conditions: c})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	expect := func(path string, status int, body string) {
		t.Helper()
		if gotStatus, got := get(t, s, path); gotStatus != status || got != body {
			t.Errorf("%s: %d %q, want %d %q", path, gotStatus, got, status, body)
		}
	}
	hot.Set(health.Finding{Severity: bus.Warning, Subject: "GPU 0", Text: "hot"})
	expect("/readyz?verbose", 200, "[+]rank_dead ok\nwarning: throttled (GPU 0): hot\nreadyz check passed\n")
	expect("/readyz/rank_dead", 200, "ok")
	dead.Set(health.Finding{Severity: bus.Critical, Subject: "rank 3", Text: "killed by signal 9"})
	dead.Set(health.Finding{Subject: "rank 2", Text: "suspect", Severity: bus.Warning})
	expect("/livez", 200, "ok")
	expect("/livez?verbose", 200, "[+]process ok\nlivez check passed\n")
	expect("/readyz", 503, "[-]rank_dead failed: rank 3: killed by signal 9\nwarning: throttled (GPU 0): hot\n"+
		"warning: rank_dead (rank 2): suspect\nreadyz check failed\n")
	expect("/readyz/rank_dead", 503, "[-]rank_dead failed: rank 3: killed by signal 9\n")
	expect("/readyz?exclude=rank_dead", 200, "ok")
	expect("/livez/rank_dead", 404, "no check named \"rank_dead\"; /livez?verbose lists them\n")
	dead.Clear("rank 3")
	expect("/readyz", 200, "ok")
}

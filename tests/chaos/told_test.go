package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
)

// patience is how long a test waits for anything before it fails.
const patience = time.Minute

// expected is what must be reported about a fault.
type expected struct {
	reason verdict.Reason
	ranks  []int // the culprits
	part   bool  // there may be more culprits than these
}

func (e *expected) String() string { return fmt.Sprintf("%s of ranks %v", e.reason, e.ranks) }

func (e *expected) fits(ev *told) bool {
	got := ev.culprits()
	if e.part {
		return ev.Reason == e.reason.String() && !slices.ContainsFunc(e.ranks,
			func(r int) bool { return !slices.Contains(got, r) })
	}
	return ev.Reason == e.reason.String() && slices.Equal(got, e.ranks)
}

// await waits until the events and alerts since the mark satisfy is.
func (j *job) await(what string, is func([]told, []alert) bool) {
	j.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		events, alerts, more := j.receiver.of(j.name)
		if is(events[j.mark.events:], alerts[j.mark.alerts:]) {
			return
		}
		select {
		case <-more:
		case <-deadline.C:
			j.t.Fatalf("%s: %s: not within %v; what was told:\n%s", j.name, what, patience, j.told())
		}
	}
}

// hurt injects a fault, waits until both receivers have been told the right reason, and returns how long the webhook
// took. Earlier events are forgotten.
func (j *job) hurt(want expected, fault func() time.Time) time.Duration {
	j.t.Helper()
	events, alerts, _ := j.receiver.of(j.name)
	j.mark.events, j.mark.alerts = len(events), len(alerts)
	at := fault()
	var first told
	j.await(want.String(), func(events []told, alerts []alert) bool {
		if len(events) == 0 || len(alerts) == 0 {
			return false
		}
		first = events[0]
		return true
	})
	if first.Stage != bus.Opened || !want.fits(&first) {
		j.t.Fatalf("%s: want %s; what was told:\n%s", j.name, &want, j.told())
	}
	return first.at.Sub(at)
}

// heals ends the fault; the job goes on, and both receivers are told that the fault is over.
func (j *job) heals(heal func()) {
	j.t.Helper()
	heal()
	j.over()
	j.moves(10)
	j.over() // still over, and nothing came after it
}

// over waits until both receivers have been told that everything is over, and checks that nothing unexpected was
// reported.
func (j *job) over() {
	j.t.Helper()
	j.await("over", func(events []told, alerts []alert) bool {
		return closed(events, false) && len(firing(alerts)) == 0
	})
	j.nothingElse()
}

// gone waits until the webhook's receiver has been told that the job has ended with the problem unresolved. To the
// person on call the problem seems to go on for a while.
func (j *job) gone() {
	j.t.Helper()
	j.await("gone", func(events []told, _ []alert) bool { return closed(events, true) })
	if j.name == slowJob {
		j.await("told by the slow receiver", func(_ []told, alerts []alert) bool {
			return slices.ContainsFunc(alerts, func(a alert) bool { return a.by == "slow" })
		})
	}
	if _, alerts, _ := j.receiver.of(j.name); len(firing(alerts[j.mark.alerts:])) != 1 {
		j.t.Fatalf("%s: one alert should be firing:\n%s", j.name, j.told())
	}
	j.nothingElse()
}

// closed tells whether all verdicts are closed, as unresolved or not.
func closed(events []told, unresolved bool) bool {
	last := map[string]*told{}
	for i := range events {
		last[events[i].Key] = &events[i]
	}
	for _, ev := range last {
		if ev.Stage != bus.Closed || ev.Unresolved != unresolved {
			return false
		}
	}
	return true
}

// firing returns the alerts that are not resolved, by reason and rank.
func firing(alerts []alert) map[string]bool {
	is := map[string]bool{}
	for i := range alerts {
		is[alerts[i].Labels["reason"]+alerts[i].Labels["rank"]] = alerts[i].Status != "resolved"
	}
	maps.DeleteFunc(is, func(_ string, is bool) bool { return !is })
	return is
}

// nothingElse fails the test if anything was reported that doesn't belong to the first verdict. One receiver may be
// told later than the other: a sender whose cable was pulled retries after a while.
func (j *job) nothingElse() {
	j.t.Helper()
	j.await("all that Alertmanager says, by webhook", func(events []told, alerts []alert) bool {
		told := map[[3]string]bool{}
		for i := range events {
			ev := &events[i]
			if ev.Key != events[0].Key && (j.also == nil || !j.also(ev)) {
				j.t.Fatalf("%s: this is not to be told:\n%s", j.name, j.told())
			}
			told[[3]string{ev.Reason, ev.Rank, ev.Severity.String()}] = true
		}
		return !slices.ContainsFunc(alerts, func(a alert) bool {
			return !told[[3]string{a.Labels["reason"], a.Labels["rank"], a.Labels["severity"]}]
		})
	})
}

// quiet fails the test if anything was reported.
func (j *job) quiet(what string) {
	j.t.Helper()
	events, alerts, _ := j.receiver.of(j.name)
	if len(events)+len(alerts) > j.mark.events+j.mark.alerts {
		j.t.Fatalf("%s: %s: nothing is to be told, and this was:\n%s", j.name, what, j.told())
	}
}

// told lists all reports since the mark.
func (j *job) told() string {
	events, alerts, _ := j.receiver.of(j.name)
	var b strings.Builder
	for i := range events[j.mark.events:] {
		ev := &events[j.mark.events+i]
		fmt.Fprintf(&b, "  %s webhook %s\n", ev.at.Format("15:04:05.000"), ev)
	}
	for i := range alerts[j.mark.alerts:] {
		fmt.Fprintf(&b, "  Alertmanager %s\n", &alerts[j.mark.alerts+i])
	}
	return b.String()
}

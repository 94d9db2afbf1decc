package view

import (
	"fmt"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// EventLine is an event on a line:
//
//	06:12:03 CRITICAL verdict.opened: rank 3 has not entered all_reduce #41 of world (reason not_entered)
//	06:12:09 over     verdict.withdrawn: rank 3 has not entered all_reduce #41 of world (12 symptoms were held back)
//
// With a Job: "06:12:03 CRITICAL train: verdict.opened: …".
func EventLine(ev *bus.Event) string {
	severity := ev.Severity.String()
	switch { // a closed event has no severity
	case ev.Stage == bus.Closed && ev.Unresolved:
		severity = "not over"
	case ev.Stage == bus.Closed:
		severity = "over"
	case ev.Severity > bus.Info:
		severity = strings.ToUpper(severity)
	}
	job := ev.Job
	if job != "" {
		job += ": "
	}
	text := fmt.Sprintf("%s %-8s %s%s", ev.Time.Local().Format(timeOfDay), severity, job,
		strings.TrimPrefix(ev.Type, semconv.EventPrefix))
	if ev.Subject != "" && !strings.HasPrefix(ev.Text, ev.Subject) { // most texts begin with it
		text += " " + ev.Subject
	}
	if ev.Text != "" {
		text += ": " + ev.Text
	}
	var remarks []string
	if ev.Reason != "" {
		remarks = append(remarks, "reason "+ev.Reason)
	}
	if ev.Repeats > 0 {
		remarks = append(remarks, fmt.Sprintf("%d more like it", ev.Repeats))
	}
	if ev.Suppressed > 0 {
		remarks = append(remarks, fmt.Sprintf("%d symptoms were held back", ev.Suppressed))
	}
	if len(remarks) > 0 {
		text += " (" + strings.Join(remarks, ", ") + ")"
	}
	return words.Line(text)
}

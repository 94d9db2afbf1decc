package bus

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// wire is an event's JSON, encoded once for all subscribers.
type wire struct {
	once sync.Once
	json []byte
	err  error
}

// The extension attributes of the envelope. CloudEvents allows lower-case letters and digits in their names.
const (
	extSeverity    = "severity"
	extStage       = "stage"
	extKey         = "key"
	extCause       = "cause"
	extJob         = "job"
	extReason      = "reason"
	extRank        = "rank"
	extText        = "text"
	extDescription = "description"
	extRepeats     = "repeats"
	extSuppressed  = "suppressed"
	extUnresolved  = "unresolved"
)

// CloudEvent is the event in its envelope: id, source, type, time, subject and data are CloudEvents' own; the other
// fields are extension attributes, strings all of them: severity, stage, key, cause, job, reason, rank, text,
// description, repeats, suppressed, unresolved ("true"). Those that are empty are left out.
func (e *Event) CloudEvent() cloudevents.Event {
	ce := cloudevents.New()
	ce.SetID(e.ID)
	ce.SetSource(e.Source)
	ce.SetType(e.Type)
	ce.SetTime(e.Time)
	if e.Subject != "" {
		ce.SetSubject(e.Subject)
	}
	ce.SetExtension(extSeverity, e.Severity.String())
	ce.SetExtension(extStage, e.Stage.String())
	for _, ext := range []struct{ name, value string }{
		{extKey, e.Key},
		{extCause, e.Cause},
		{extJob, e.Job},
		{extReason, e.Reason},
		{extRank, e.Rank},
		{extText, e.Text},
		{extDescription, e.Description},
		{extRepeats, count(e.Repeats)},
		{extSuppressed, count(e.Suppressed)},
		{extUnresolved, truth(e.Unresolved)},
	} {
		if ext.value != "" {
			ce.SetExtension(ext.name, ext.value)
		}
	}
	if data := e.JSON(); data != nil {
		ce.SetDataContentType(cloudevents.ApplicationJSON)
		ce.DataEncoded = data
	}
	return ce
}

func count(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func truth(is bool) string {
	if !is {
		return ""
	}
	return "true"
}

// MarshalJSON is the event as a CloudEvent in JSON (application/cloudevents+json). A published event is encoded once;
// the bytes must not be modified.
func (e *Event) MarshalJSON() ([]byte, error) {
	if e.wire == nil {
		return e.encode()
	}
	e.wire.once.Do(func() { e.wire.json, e.wire.err = e.encode() })
	return e.wire.json, e.wire.err
}

func (e *Event) encode() ([]byte, error) {
	ce := e.CloudEvent()
	if err := ce.Validate(); err != nil {
		return nil, fmt.Errorf("bus: event %s: %w", e.ID, err)
	}
	return ce.MarshalJSON()
}

// UnmarshalJSON reads what MarshalJSON wrote, or any CloudEvent in JSON: what it doesn't have is empty. It neither
// trusts its input nor bounds it.
func (e *Event) UnmarshalJSON(b []byte) error {
	var ce cloudevents.Event
	if err := ce.UnmarshalJSON(b); err != nil {
		return fmt.Errorf("bus: not a CloudEvent: %w", err)
	}
	if err := ce.Validate(); err != nil {
		return fmt.Errorf("bus: not a CloudEvent: %w", err)
	}
	out := Event{ID: ce.ID(), Source: ce.Source(), Type: ce.Type(), Time: ce.Time(), Subject: ce.Subject()}
	if data := ce.Data(); len(data) > 0 {
		if !json.Valid(data) {
			return fmt.Errorf("bus: the data of event %s are not JSON", clip(out.ID, 64))
		}
		out.Data = json.RawMessage(data)
	}
	for name, value := range ce.Extensions() {
		s := fmt.Sprint(value)
		var err error
		switch name {
		case extSeverity:
			out.Severity, err = ParseSeverity(s)
		case extStage:
			out.Stage, err = ParseStage(s)
		case extRepeats:
			out.Repeats, err = strconv.ParseUint(s, 10, 64)
		case extSuppressed:
			out.Suppressed, err = strconv.ParseUint(s, 10, 64)
		case extUnresolved:
			out.Unresolved, err = strconv.ParseBool(s)
		case extKey:
			out.Key = s
		case extCause:
			out.Cause = s
		case extJob:
			out.Job = s
		case extReason:
			out.Reason = s
		case extRank:
			out.Rank = s
		case extText:
			out.Text = s
		case extDescription:
			out.Description = s
		}
		if err != nil {
			return fmt.Errorf("bus: %s of event %s: %w", name, clip(out.ID, 64), err)
		}
	}
	*e = out
	return nil
}

package bus

import (
	"encoding/json"
	"fmt"
	"strconv"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// The extension attributes that aren't plain texts. CloudEvents allows lower-case letters and digits in names.
const (
	extSeverity   = "severity"
	extStage      = "stage"
	extUnresolved = "unresolved"
)

func (e *Event) texts() map[string]*string {
	return map[string]*string{
		"key": &e.Key, "cause": &e.Cause, "job": &e.Job, "reason": &e.Reason, "rank": &e.Rank, "text": &e.Text,
		"description": &e.Description,
	}
}

func (e *Event) numbers() map[string]*uint64 {
	return map[string]*uint64{"repeats": &e.Repeats, "suppressed": &e.Suppressed}
}

// CloudEvent is the event in its envelope. id, source, type, time, subject and data are CloudEvents' own; the other
// fields are extension attributes, all of them strings: severity, stage, key, cause, job, reason, rank, text,
// description, repeats, suppressed, unresolved ("true"). Empty ones are left out.
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
	if e.Unresolved {
		ce.SetExtension(extUnresolved, "true")
	}
	for name, text := range e.texts() {
		if *text != "" {
			ce.SetExtension(name, *text)
		}
	}
	for name, n := range e.numbers() {
		if *n != 0 {
			ce.SetExtension(name, strconv.FormatUint(*n, 10))
		}
	}
	if data := e.JSON(); data != nil {
		ce.SetDataContentType(cloudevents.ApplicationJSON)
		ce.DataEncoded = data
	}
	return ce
}

// MarshalJSON is the event as a CloudEvent in JSON (application/cloudevents+json). A published event is encoded once;
// the bytes must not be modified.
func (e *Event) MarshalJSON() ([]byte, error) {
	if e.wire == nil {
		return e.encode()
	}
	return e.wire()
}

func (e *Event) encode() ([]byte, error) {
	ce := e.CloudEvent()
	if err := ce.Validate(); err != nil {
		return nil, fmt.Errorf("bus: event %s: %w", e.ID, err)
	}
	return ce.MarshalJSON()
}

// UnmarshalJSON reads what MarshalJSON wrote, or any other CloudEvent in JSON; missing fields are empty. It doesn't
// trust its input, but doesn't bound its size either.
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
			return fmt.Errorf("bus: the data of event %s are not JSON", words.Clip(out.ID, 64))
		}
		out.Data = json.RawMessage(data)
	}
	texts, numbers := out.texts(), out.numbers()
	for name, value := range ce.Extensions() {
		s := fmt.Sprint(value)
		var err error
		switch {
		case texts[name] != nil:
			*texts[name] = s
		case numbers[name] != nil:
			*numbers[name], err = strconv.ParseUint(s, 10, 64)
		case name == extSeverity:
			out.Severity, err = ParseSeverity(s)
		case name == extStage:
			out.Stage, err = words.Named[Stage]("stage", stageNames[:], s)
		case name == extUnresolved:
			out.Unresolved, err = strconv.ParseBool(s)
		}
		if err != nil {
			return fmt.Errorf("bus: %s of event %s: %w", name, words.Clip(out.ID, 64), err)
		}
	}
	*e = out
	return nil
}

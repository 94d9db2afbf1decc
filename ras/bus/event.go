package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Bounds of what can be published. Longer text is cut; larger data is refused.
const (
	MaxText = 8 << 10
	MaxData = 256 << 10
	maxName = 512 // Key, Cause, Subject, Reason, Rank
)

// Severity says how urgent an event is.
type Severity uint8

// The severities, as the alerting rules have them.
const (
	Info     Severity = iota // needs no action
	Warning                  // needs action in working hours
	Critical                 // needs action now
)

var severityNames = [...]string{"info", "warning", "critical"}

// String is the severity's name: "warning".
func (s Severity) String() string { return words.Name("severity", severityNames[:], s) }

// ParseSeverity reads what String wrote.
func ParseSeverity(name string) (Severity, error) {
	return words.Named[Severity]("severity", severityNames[:], name)
}

// MarshalText is String, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSeverity.
func (s *Severity) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSeverity(string(text))
	return err
}

// Stage says what an event means for the condition that its Key names.
type Stage uint8

// The stages.
const (
	Once    Stage = iota // something momentary, not a condition
	Opened               // the condition holds from now on
	Changed              // it still holds, but has changed
	Closed               // it no longer holds
)

var stageNames = [...]string{"once", "opened", "changed", "closed"}

// String is the stage's name: "opened".
func (s Stage) String() string { return words.Name("stage", stageNames[:], s) }

// Event is something that RAS reports. A published event must not be modified, as all subscribers share it.
type Event struct {
	// ID is unique for the Source and grows with time; a subscriber can resume after it. The Bus sets it.
	ID string
	// Source is the process that reports it, a URI reference; Config.Source if empty.
	Source string
	// Type is one of semconv's Event types. Required.
	Type string
	// Time is when it happened; the time of Publish if zero.
	Time time.Time
	// Subject is what it is about, for people: "rank 3", "comm world".
	Subject string

	Severity Severity
	Stage    Stage
	// Key names the condition among those of the Job. Events of the stage Once repeat each other if they share a Key,
	// which must not be that of a condition; without a Key they are never folded. Required for the other stages.
	Key string
	// Cause is the Key of the condition that explains this one, if known.
	Cause string

	// Job is the job's name; Config.Job if there is one.
	Job string
	// Reason is the stable name of the reason: "not_entered".
	Reason string
	// Rank is the rank at fault, as a rank of the job: "3", or "2 and 5" for several ranks.
	Rank string
	// Labels distinguish its alert from others of its type, in place of the Reason. They aren't part of the CloudEvent.
	Labels map[string]string
	// Text says it in one sentence; Description has the details, at any length.
	Text, Description string
	// Unresolved says, on the event that closes a condition, that its cause may still be there: only the processes that
	// it affected are gone, such as when a job ends because of it.
	Unresolved bool
	// Data is anything that json.Marshal takes. On a published event it is a json.RawMessage, or nil.
	Data any

	// Repeats counts the similar events that were folded since the last published one. The Bus sets it.
	Repeats uint64
	// Suppressed counts, on the event that closes a condition, the symptoms that were held back. The Bus sets it.
	Suppressed uint64

	seq  uint64                 // number among the events that the Bus published
	peak Severity               // the condition's highest: a subscriber that got its beginning must also get its end
	wire func() ([]byte, error) // its JSON, encoded once for all subscribers
}

// JSON is the data of a published event; nil if it has none.
func (e *Event) JSON() json.RawMessage {
	data, _ := e.Data.(json.RawMessage)
	return data
}

// prepare checks a publisher's event, cuts its texts and encodes its data.
func (e *Event) prepare() error {
	_, notURI := url.Parse(e.Source)
	switch {
	case e.Type == "":
		return errors.New("bus: an event without a Type can't be published: set one of semconv's Event types")
	case strings.ContainsFunc(e.Type, unicode.IsControl) || !utf8.ValidString(e.Type) || len(e.Type) > maxName:
		return fmt.Errorf("bus: %q is no Type: allowed are up to %d characters, none of them a control character",
			words.Clip(e.Type, 64), maxName)
	case notURI != nil || len(e.Source) > maxName:
		return fmt.Errorf("bus: %q is no Source of an event of the type %s: allowed is a URI reference",
			words.Clip(e.Source, 64), e.Type)
	case e.Stage != Once && e.Key == "":
		return fmt.Errorf("bus: an event of the type %s at the stage %v needs a Key, by which its condition is known",
			e.Type, e.Stage)
	case e.Unresolved && e.Stage != Closed:
		return fmt.Errorf("bus: an event of the type %s is unresolved at the stage %v: allowed is %v", e.Type,
			e.Stage, Closed)
	case e.Stage > Closed || e.Severity > Critical:
		return fmt.Errorf("bus: an event of the type %s has %v and %v, which don't exist", e.Type, e.Stage, e.Severity)
	}
	if e.Data != nil {
		data, err := json.Marshal(e.Data)
		if err != nil {
			return fmt.Errorf("bus: the data of an event of the type %s: %w", e.Type, err)
		}
		if len(data) > MaxData {
			return fmt.Errorf("bus: the data of an event of the type %s is %d bytes of JSON: allowed are %d", e.Type,
				len(data), MaxData)
		}
		e.Data = json.RawMessage(data)
	}
	for _, name := range []*string{&e.Subject, &e.Key, &e.Cause, &e.Reason, &e.Rank} {
		*name = words.Clip(*name, maxName)
	}
	e.Text, e.Description = words.Clip(e.Text, MaxText), words.Clip(e.Description, MaxText)
	e.ID, e.Repeats, e.Suppressed, e.peak, e.wire = "", 0, 0, e.Severity, nil
	return nil
}

// like tells whether two events are the same except for their times.
func (e *Event) like(o *Event) bool {
	return e.Type == o.Type && e.Stage == o.Stage && e.Severity == o.Severity && e.Subject == o.Subject &&
		e.Cause == o.Cause && e.Unresolved == o.Unresolved && e.Reason == o.Reason && e.Rank == o.Rank &&
		e.Text == o.Text && e.Description == o.Description && string(e.JSON()) == string(o.JSON())
}

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

// Severity is how urgent an event is.
type Severity uint8

// The severities, as the alerting rules have them.
const (
	Info     Severity = iota // nobody need act
	Warning                  // in working hours
	Critical                 // now
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

// Stage is what an event means for the condition that its Key names.
type Stage uint8

// The stages.
const (
	Once    Stage = iota // a moment: nothing lasts
	Opened               // the condition holds from now on
	Changed              // it holds, and is seen differently
	Closed               // it holds no longer
)

var stageNames = [...]string{"once", "opened", "changed", "closed"}

// String is the stage's name: "opened".
func (s Stage) String() string { return words.Name("stage", stageNames[:], s) }

// Event is something that RAS has to tell. Of a published event nothing may be modified: all subscribers share it.
type Event struct {
	// ID is unique for the Source and grows with time; resuming begins behind it. The Bus sets it.
	ID string
	// Source is the process that tells it, a URI reference; Config.Source if empty.
	Source string
	// Type is one of semconv's Event types. Required.
	Type string
	// Time is when it happened; when it was published if zero.
	Time time.Time
	// Subject is what it is about, for people: "rank 3", "comm world".
	Subject string

	Severity Severity
	Stage    Stage
	// Key names the condition, or what makes moments repetitions of each other; moments and a condition don't share
	// one. Required unless Stage is Once; a moment without a Key is never folded.
	Key string
	// Cause is the Key of the condition that explains this one, if one is known.
	Cause string

	// Job is the job's name; Config.Job if there is one.
	Job string
	// Reason is the stable name of why: "not_entered".
	Reason string
	// Rank is the rank at fault, as a rank of the job, in decimal.
	Rank string
	// Labels are what tells its alert from others of its type, instead of the Reason; they don't travel.
	Labels map[string]string
	// Text is the news in one sentence; Description has more of it, as long as need be.
	Text, Description string
	// Unresolved says, on the event that closes a condition, that its cause is not known to be gone: those whom it
	// concerned are, such as when a job ends because of it.
	Unresolved bool
	// Data is anything that json.Marshal takes. On a published event it is a json.RawMessage, or nil.
	Data any

	// Repeats counts the events like this one that were folded since the last that was published. The Bus sets it.
	Repeats uint64
	// Suppressed counts, on the event that closes a condition, the symptoms that were held back for it. Set by the Bus.
	Suppressed uint64

	seq  uint64                 // of those that the Bus published
	peak Severity               // the highest of the condition; a subscriber that heard of it must hear of its end
	wire func() ([]byte, error) // its JSON, encoded once for all subscribers
}

// JSON is the data of a published event; nil if it has none.
func (e *Event) JSON() json.RawMessage {
	data, _ := e.Data.(json.RawMessage)
	return data
}

// prepare makes a publisher's event fit to be published: it checks it, cuts its text and encodes its data.
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

// like tells whether two events say the same, at whatever time.
func (e *Event) like(o *Event) bool {
	return e.Type == o.Type && e.Stage == o.Stage && e.Severity == o.Severity && e.Subject == o.Subject &&
		e.Cause == o.Cause && e.Unresolved == o.Unresolved && e.Reason == o.Reason && e.Rank == o.Rank &&
		e.Text == o.Text && e.Description == o.Description && string(e.JSON()) == string(o.JSON())
}

package verdict

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Age is how long something has lasted. Its JSON is a number of seconds.
type Age time.Duration

// maxAge is the longest in JSON, in seconds: some 30 years.
const maxAge = 1e9

// MarshalJSON writes seconds, with as many decimal places as it takes to read the same Age again. Notes of other
// processes may hold absurd ages: these are limited to what UnmarshalJSON accepts.
func (a Age) MarshalJSON() ([]byte, error) {
	seconds := max(-maxAge, min(time.Duration(a).Seconds(), maxAge))
	return strconv.AppendFloat(nil, seconds, 'f', -1, 64), nil
}

// UnmarshalJSON reads seconds.
func (a *Age) UnmarshalJSON(b []byte) error {
	seconds, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(math.Abs(seconds) <= maxAge) {
		return fmt.Errorf("verdict: an age of %.40q is no number of seconds", b)
	}
	*a = Age(math.Round(seconds * float64(time.Second)))
	return nil
}

// String is the Age as a duration that a person reads: "3.21s".
func (a Age) String() string { return words.Round(time.Duration(a)).String() }

// Text is a sentence for a person. Its ages stay numbers until it is read, so that the sentence can be brought up to
// date; see After. Its JSON is the sentence.
type Text struct {
	marked string // each age in nanoseconds, between two ageMarks
}

// ageMark stands before and after an age. No other control character is in a Text.
const ageMark = "\x00"

func (a Age) marked() string { return ageMark + strconv.FormatInt(int64(a), 10) + ageMark }

// say is like fmt.Sprintf, but keeps the marks of Ages and Texts among the arguments, which must be for %s verbs.
func say(format string, args ...any) Text {
	args = slices.Clone(args)
	for i, arg := range args {
		switch a := arg.(type) {
		case Age:
			args[i] = a.marked()
		case Text:
			args[i] = a.marked
		case string:
			args[i] = words.Line(a)
		}
	}
	return Text{fmt.Sprintf(format, args...)}
}

// add appends more of the sentence.
func (t *Text) add(format string, args ...any) { t.marked += say(format, args...).marked }

// Format returns the sentence, with its words and its ages as these functions write them.
func (t Text) Format(words func(string) string, age func(Age) string) string {
	var b strings.Builder
	for i, part := range strings.Split(t.marked, ageMark) {
		if i%2 == 0 {
			b.WriteString(words(part))
		} else if a, err := strconv.ParseInt(part, 10, 64); err == nil {
			b.WriteString(age(Age(a)))
		}
	}
	return b.String()
}

func unchanged(words string) string { return words }

// String is the sentence.
func (t Text) String() string { return t.Format(unchanged, Age.String) }

// Ageless is the sentence with … for each age, to compare sentences of different moments.
func (t Text) Ageless() string { return t.Format(unchanged, func(Age) string { return "…" }) }

// After is the sentence as it is d later.
func (t Text) After(d time.Duration) Text {
	return Text{t.Format(unchanged, func(a Age) string { return (a + Age(d)).marked() })}
}

// truncate is the sentence, of at most so many bytes.
func (t Text) truncate(most int) Text {
	if len(t.marked) <= most {
		return t
	}
	cut := strings.ToValidUTF8(t.marked[:most], "")
	if strings.Count(cut, ageMark)%2 == 1 { // within an age
		cut = cut[:strings.LastIndex(cut, ageMark)]
	}
	return Text{cut + " …"}
}

// MarshalJSON writes the sentence.
func (t Text) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// UnmarshalJSON reads a sentence; its ages stay as they are.
func (t *Text) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	*t = Sentence(text)
	return nil
}

// Sentence is a Text without ages. Control characters become spaces.
func Sentence(text string) Text { return Text{words.Line(text)} }

// Packed is a verdict as processes send it to each other: with the ages of its sentences as numbers.
type Packed struct {
	Verdict
	Said     string   `json:"said"`
	SaidMore []string `json:"said_more,omitempty"`
}

// Pack is the verdict as it is sent to another process.
func (v Verdict) Pack() Packed {
	p := Packed{Verdict: v, Said: v.Text.marked}
	for _, e := range v.Evidence {
		p.SaidMore = append(p.SaidMore, e.marked)
	}
	p.Text, p.Evidence = Text{}, nil
	return p
}

// Unpack is the verdict that was packed.
func (p Packed) Unpack() Verdict {
	text := func(marked string) Text { return Text{Text{marked}.Format(words.Line, Age.marked)} }
	v := p.Verdict
	v.Text = text(p.Said)
	for _, e := range p.SaidMore {
		v.Evidence = append(v.Evidence, text(e))
	}
	return v
}

// Shorten limits the sentences of a verdict to so many bytes, and its lists to so many entries.
func (v Verdict) Shorten(bytes, culprits, victims, evidence int) Verdict {
	v.Text = v.Text.truncate(bytes)
	v.Culprits = v.Culprits[:min(len(v.Culprits), culprits)]
	v.Victims = v.Victims[:min(len(v.Victims), victims)]
	v.Evidence = slices.Clone(v.Evidence[:min(len(v.Evidence), evidence)])
	for i := range v.Evidence {
		v.Evidence[i] = v.Evidence[i].truncate(bytes)
	}
	return v
}

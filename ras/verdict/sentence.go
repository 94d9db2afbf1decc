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

// Age is for how long something has lasted. Its JSON is a number of seconds.
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

// Text is a sentence for a person. It keeps its ages apart from the words, so that the sentence can be brought up to
// date; see After. Its JSON is the sentence.
type Text struct {
	sentence string // with ageMark where an age is
	ages     []Age
}

// ageMark stands for an age. No other control character is in a Text.
const ageMark = "\x00"

// say is fmt.Sprintf, but for ages and Texts among the arguments, which must be for %s verbs.
func say(format string, args ...any) Text {
	var t Text
	args = slices.Clone(args)
	for i, arg := range args {
		switch a := arg.(type) {
		case Age:
			args[i] = ageMark
			t.ages = append(t.ages, a)
		case Text:
			args[i] = a.sentence
			t.ages = append(t.ages, a.ages...)
		case string:
			args[i] = words.Line(a)
		}
	}
	t.sentence = fmt.Sprintf(format, args...)
	return t
}

// add appends more of the sentence.
func (t *Text) add(format string, args ...any) { *t = say("%s%s", *t, say(format, args...)) }

// String is the sentence.
func (t Text) String() string {
	return t.Format(func(words string) string { return words }, Age.String)
}

// Format is the sentence, with its words and its ages written by these functions.
func (t Text) Format(words func(string) string, age func(Age) string) string {
	parts := strings.Split(t.sentence, ageMark)
	var b strings.Builder
	for i, part := range parts {
		if i > 0 && i <= len(t.ages) {
			b.WriteString(age(t.ages[i-1]))
		}
		b.WriteString(words(part))
	}
	return b.String()
}

// After is the sentence as it is d later.
func (t Text) After(d time.Duration) Text {
	t.ages = slices.Clone(t.ages)
	for i := range t.ages {
		t.ages[i] += Age(d)
	}
	return t
}

// truncate is the sentence, of at most so many bytes.
func (t Text) truncate(most int) Text {
	if len(t.sentence) <= most {
		return t
	}
	t.sentence = strings.ToValidUTF8(t.sentence[:most], "") + " …"
	t.ages = t.ages[:min(len(t.ages), strings.Count(t.sentence, ageMark))]
	return t
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
func Sentence(text string) Text { return Text{sentence: words.Line(text)} }

// Packed is a verdict as processes send it to each other: with the ages of its sentences apart from the words.
type Packed struct {
	Verdict
	Said     packed   `json:"said"`
	SaidMore []packed `json:"said_more,omitempty"`
}

type packed struct {
	Words string `json:"words"`
	Ages  []Age  `json:"ages,omitempty"`
}

// packedMark is ageMark in a packed text.
const packedMark = "\x01"

// Pack is the verdict as it is sent to another process.
func (v Verdict) Pack() Packed {
	p := Packed{Verdict: v, Said: v.Text.pack()}
	for _, e := range v.Evidence {
		p.SaidMore = append(p.SaidMore, e.pack())
	}
	p.Text, p.Evidence = Text{}, nil
	return p
}

// Unpack is the verdict that was packed.
func (p Packed) Unpack() Verdict {
	v := p.Verdict
	v.Text = p.Said.text()
	for _, e := range p.SaidMore {
		v.Evidence = append(v.Evidence, e.text())
	}
	return v
}

func (t Text) pack() packed {
	return packed{strings.ReplaceAll(t.sentence, ageMark, packedMark), t.ages}
}

func (p packed) text() Text {
	parts := strings.Split(p.Words, packedMark)
	for i := range parts {
		parts[i] = words.Line(parts[i])
	}
	parts = parts[:min(len(parts), len(p.Ages)+1)]
	return Text{strings.Join(parts, ageMark), p.Ages[:len(parts)-1]}
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

// Ageless is the sentence with … for each age, to compare sentences of different moments.
func (t Text) Ageless() string { return strings.ReplaceAll(t.sentence, ageMark, "…") }

package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestScenarios plays the transcripts in testdata: a command a line, its recorded output indented below it. The clock is
// at 12:00:00 and goes on by a second with each command. The commands:
//
//	open COMM [rank R of N] [nonblocking]   begins a life; it is initializing
//	CALL COMM [at FUNC FILE:LINE]           makes a call (an operation is checked, any other call is done)
//	event EVENT COMM [CODE rank R]          signals an event, caused by a PeerError of that code
//	retire COMM                             gives its slot back
//	lookup COMM                             looks for its handle
//	live                                    lists what has not retired
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			recorded(t, file, play(t, string(script)))
		})
	}
}

const indent = "    "

// play runs the commands of a transcript, and returns it with their present outputs.
func play(t *testing.T, transcript string) string {
	s := scenario{
		registry: NewRegistry(),
		lives:    map[string]*Life{},
		clock:    time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
	var out strings.Builder
	for line := range strings.Lines(transcript) {
		if strings.HasPrefix(line, indent) {
			continue
		}
		out.WriteString(line)
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		answer, err := s.run(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out.WriteString(indent + answer + "\n")
		s.clock = s.clock.Add(time.Second)
	}
	return out.String()
}

type scenario struct {
	registry *Registry
	lives    map[string]*Life
	clock    time.Time
}

// run does one command and returns its output; an error is a mistake in the transcript.
func (s *scenario) run(line string) (string, error) {
	words := strings.Fields(line)
	switch verb := words[0]; verb {
	case "live":
		return s.live(), nil
	case "open":
		return s.open(words[1], words[2:])
	case "event":
		life, err := s.life(words, 2)
		if err != nil {
			return "", err
		}
		return s.event(life, words[1], words[3:])
	case "retire", "lookup":
		life, err := s.life(words, 1)
		if err != nil {
			return "", err
		}
		if verb == "retire" {
			return map[bool]string{true: "its slot is free", false: "no: " + life.State().String()}[life.Retire()], nil
		}
		if found, err := s.registry.Lookup(life.Handle()); err != nil {
			return err.Error(), nil
		} else if found != life {
			return "", fmt.Errorf("found another life")
		}
		return "found: " + life.State().String(), nil
	default:
		life, err := s.life(words, 1)
		if err != nil {
			return "", err
		}
		return s.call(life, verb, words[2:])
	}
}

func (s *scenario) life(words []string, i int) (*Life, error) {
	if len(words) <= i {
		return nil, fmt.Errorf("which communicator?")
	}
	if words[i] == "nil" {
		return nil, nil
	}
	life := s.lives[words[i]]
	if life == nil {
		return nil, fmt.Errorf("%s was not opened", words[i])
	}
	return life, nil
}

func (s *scenario) open(name string, options []string) (string, error) {
	info := Info{Name: name, Size: 1, Call: CallInitRank}
	copy(info.ID[:], name)
	for i, option := range options {
		var err error
		switch option {
		case "nonblocking":
			info.NonBlocking = true
		case "rank":
			info.Rank, err = strconv.Atoi(options[i+1])
		case "of":
			info.Size, err = strconv.Atoi(options[i+1])
		}
		if err != nil {
			return "", err
		}
	}
	life := s.registry.Open(info)
	s.lives[name] = life
	return fmt.Sprintf("%v, handle %v", life.State(), life.Handle()), nil
}

func (s *scenario) call(life *Life, verb string, words []string) (string, error) {
	call := CallNone
	for _, c := range Calls() {
		if c.String() == verb {
			call = c
		}
	}
	if call == CallNone {
		return "", fmt.Errorf("there is no call or command %q", verb)
	}
	site := Site{Time: s.clock}
	if len(words) == 3 && words[0] == "at" {
		file, number, _ := strings.Cut(words[2], ":")
		line, err := strconv.Atoi(number)
		if err != nil {
			return "", err
		}
		site = Site{Func: words[1], File: file, Line: line, Goroutine: 1, Time: s.clock}
	}
	if call.IsOperation() {
		if err := life.Check(call); err != nil {
			return err.Error(), nil
		}
		return "ok", nil
	}
	state, err := life.Do(call, site)
	if err != nil {
		return err.Error(), nil
	}
	return state.String(), nil
}

func (s *scenario) event(life *Life, name string, words []string) (string, error) {
	event := EventNone
	for _, e := range Events() {
		if e.String() == name {
			event = e
		}
	}
	if event == EventNone {
		return "", fmt.Errorf("there is no event %q", name)
	}
	var cause error
	if len(words) == 3 {
		rank, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		for _, code := range Codes() {
			if code.String() == words[0] {
				cause = &PeerError{Code: code, Rank: rank}
			}
		}
	}
	state, changed := life.Signal(event, cause)
	if !changed {
		return fmt.Sprintf("%v, as before", state), nil
	}
	return state.String(), nil
}

func (s *scenario) live() string {
	var all []string
	for _, life := range s.registry.Live() {
		info := life.Info()
		all = append(all, fmt.Sprintf("%s (rank %d of %d) %v", info.Name, info.Rank, info.Size, life.State()))
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
